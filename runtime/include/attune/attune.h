/* SPDX-License-Identifier: Apache-2.0
 * attune: attention kernels made for the machine they run on. The C11 interface of libattune.so.
 *
 *   // With q, k, v, o and stream (NULL on a CPU) of yours, in the memory of the device:
 *   attune_context* context;
 *   attune_problem problem;
 *   attune_plan* plan;
 *   attune_plan_info info = {.size = sizeof info};
 *   attune_operands operands;
 *   attune_context_create(NULL, &context);  // the GPU if there is one, else the CPU
 *   attune_problem_parse("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=1024", &problem);
 *   attune_plan_get(context, &problem, NULL, &plan);  // looks up, or compiles: may take a second
 *   attune_plan_get_info(plan, &info);
 *   void* workspace = allocate(info.workspace_bytes);  // of the device, aligned to 256 bytes
 *   attune_workspace_init(plan, workspace, info.workspace_bytes, stream);  // once for a buffer
 *   attune_operands_contiguous(&problem, q, k, v, o, NULL, &operands);
 *   attune_run(plan, &operands, workspace, info.workspace_bytes, stream);  // only enqueues
 *   attune_plan_release(plan);
 *   attune_context_destroy(context);
 *
 * No function throws, aborts or exits, nor prints but AT106: see attune_context_options.log. Each
 * returns a status; attune_last_error() has the sentence. Every struct starts with its size: programs
 * built against an older header keep working. Functions that fill structs are macros that pass the
 * size which the caller compiled. A size below 8 or above 65536 is refused, or nothing is written.
 * Threads: contexts and plans may be used from any thread at once; attune_run takes no lock and
 * allocates nothing. Compiling for a CPU runs on a thread of its own with a stack of 8 MB; clang may
 * end the process where memory is gone meanwhile. Kernels of bundles and stores need no clang.
 * Fork: a child may run the CPU plans that it holds, on one thread, and release them. It may call
 * everything else if no other thread of the parent was inside attune when it forked; a GPU is, as
 * with CUDA itself, for the process that opened it.
 */
#ifndef ATTUNE_ATTUNE_H_
#define ATTUNE_ATTUNE_H_

#include "attune/attune_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTUNE_ABI_VERSION 1
#if defined(__GNUC__)
#define ATTUNE_API __attribute__((visibility("default")))
#else
#define ATTUNE_API
#endif

/* The calling thread's last failure, as a sentence of at most 4095 bytes; "" when there was none. */
ATTUNE_API const char* attune_last_error(void);
ATTUNE_API const char* attune_status_name(attune_status status);
ATTUNE_API const char* attune_version(void);
ATTUNE_API int32_t attune_abi_version(void);

ATTUNE_API void attune_context_options_init_sized(attune_context_options* options, size_t size);
#define attune_context_options_init(options) \
  attune_context_options_init_sized((options), sizeof(attune_context_options))
/* options NULL = all defaults. On failure *context is NULL. */
ATTUNE_API attune_status attune_context_create(const attune_context_options* options,
                                               attune_context** context);
/* Waits for calls on this context that are under way; its log function is not called afterwards.
 * Plans still held keep what they need alive. NULL is fine; so it is for attune_plan_release. */
ATTUNE_API void attune_context_destroy(attune_context* context);
/* Reads the stores again, for what was tuned since: plans asked for from now on are chosen anew. Those
 * held stay as they are. Kernels that are loaded already are not loaded again. */
ATTUNE_API attune_status attune_context_reload(attune_context* context);
/* "sm_90 NVIDIA H200" or "cpu:znver4 AMD EPYC ..., 8 threads"; lives as long as the context. */
ATTUNE_API const char* attune_context_device(const attune_context* context);
/* SHA-256 of what the context chooses kernels from: of its pin file, or of what its stores and bundles
 * pin on this device. Ranks of one version of attune whose 32 bytes are equal run the same kernels. */
ATTUNE_API attune_status attune_context_pin_digest(attune_context* context, uint8_t digest[32]);

ATTUNE_API void attune_problem_init_sized(attune_problem* problem, size_t size);
#define attune_problem_init(problem) attune_problem_init_sized((problem), sizeof(attune_problem))
/* dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=2048,mask=causal_bottom_right,window=1024:0,
 * scale=0.1; also head_dim_qk, head_dim_v, seqlen_q, seqlen_kv; "-" = an open side of a window.
 * heads, head dims and lengths must be given, and nothing twice. No text reads a file. For 8 bits:
 * dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,accuracy=fast,v_layout=transposed,scale_block=128;
 * op=quantise,dtype=bf16,dtype_o=e4m3,rotation=hadamard. To join the results of two calls over
 * different keys, op=merge,dtype=fp32,dtype_kv=bf16: q and q_scale are the first's o and lse (with
 * block_stride 1), k and k_scale the second's; o and lse may stand where the first's do. A row with lse
 * -infinity has seen no key, and its o does not count. Over a cache of requests (attune_cache_types.h):
 * op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=32,seqlen_q=1,seqlen_kv=8192,
 * page_size=16. To write into that cache, op=append_kv with rotary=fp32 (attune_append_types.h). */
ATTUNE_API attune_status attune_problem_parse_sized(const char* text, attune_problem* problem,
                                                    size_t size);
#define attune_problem_parse(text, problem) \
  attune_problem_parse_sized((text), (problem), sizeof(attune_problem))
/* Parses a program of the score language; *program is for attune_problem.score_mod or mask_mod, and lives as long as the process.
 * Errors name line and column of the text. `warnings` (or NULL) gets a line for each, cut to fit. */
ATTUNE_API attune_status attune_program_parse(const attune_program_desc* desc,
                                              const attune_program** program, char* warnings,
                                              size_t capacity);
/* The program in its canonical form. The text lives as long as the process. */
ATTUNE_API const char* attune_program_text(const attune_program* program);
/* Its nodes, a line each, operands before their users, the result last: numbers of its operation and type
 * (generator/core/score/program.hpp), its index, its bits and its operands' lines, from 0 on; an index
 * counts the captures, or scalars, of the text. The text lives as long as the process. */
ATTUNE_API const char* attune_program_nodes(const attune_program* program);
/* Is there a kernel for it here? `reasons` (or NULL) gets a line for each template, cut to fit. */
ATTUNE_API attune_status attune_problem_check(attune_context* context,
                                              const attune_problem* problem, char* reasons,
                                              size_t capacity);
/* Operands without gaps, rows of a head at multiples of 16 bytes; no factors. All zeros when the
 * problem is refused. */
ATTUNE_API attune_status attune_operands_contiguous_sized(const attune_problem* problem, void* q,
                                                          void* k, void* v, void* o, float* lse,
                                                          attune_operands* operands, size_t size);
#define attune_operands_contiguous(problem, q, k, v, o, lse, operands)               \
  attune_operands_contiguous_sized((problem), (q), (k), (v), (o), (lse), (operands), \
                                   sizeof(attune_operands))

/* The same of op attention_backward's gradients; dlse NULL. Of problems with score_gradient set
 * dscores.data. */
ATTUNE_API attune_status attune_gradients_contiguous_sized(const attune_problem* problem,
                                                           void* dout, void* dq, void* dk, void* dv,
                                                           attune_gradient_operands* gradients,
                                                           size_t size);
#define attune_gradients_contiguous(problem, dout, dq, dk, dv, gradients)             \
  attune_gradients_contiguous_sized((problem), (dout), (dq), (dk), (dv), (gradients), \
                                    sizeof(attune_gradient_operands))

/* The same of op append_kv's new rows and angles (NULL without rotary); lists NULL. */
ATTUNE_API attune_status attune_append_contiguous_sized(const attune_problem* problem, void* k,
                                                        void* v, void* cos, void* sin,
                                                        attune_append_operands* append,
                                                        size_t size);
#define attune_append_contiguous(problem, k, v, cos, sin, append)             \
  attune_append_contiguous_sized((problem), (k), (v), (cos), (sin), (append), \
                                 sizeof(attune_append_operands))
ATTUNE_API void attune_rotary_init_sized(attune_rotary* rotary, size_t size);
#define attune_rotary_init(rotary) attune_rotary_init_sized((rotary), sizeof(attune_rotary))
/* Writes cos and sin [num_positions, rotary_dim / 2] of positions first_position on, on the host: angles
 * and frequencies are rounded to fp32 as transformers rounds them. */
ATTUNE_API attune_status attune_rotary_table(const attune_rotary* rotary, int64_t first_position,
                                             int64_t num_positions, float* cos, float* sin);

/* Cached by what the problem computes; compiles or loads at most once. Problems whose masks and
 * windows hide the same keys at these lengths are one. The 2048 plans used last are kept; a plan
 * that you hold stays good, and one that went is made again without compiling. `layout`: NULL for
 * contiguous operands, else operands with the strides of the coming runs (data may be NULL):
 * kernels that cannot take those strides are passed over. Release what you get. */
ATTUNE_API attune_status attune_plan_get(attune_context* context, const attune_problem* problem,
                                         const attune_operands* layout, attune_plan** plan);
ATTUNE_API void attune_plan_release(attune_plan* plan);
/* Set info->size first. */
ATTUNE_API attune_status attune_plan_get_info(const attune_plan* plan, attune_plan_info* info);
/* Lines that say which kernel, which rung, how old, why not another, and what was damaged or
 * refused on the way; live as long as the plan. `attune explain` prints them without a program. */
ATTUNE_API const char* attune_plan_explain(const attune_plan* plan);
/* Plans for all of them, so that attune_plan_get only looks up. Stops at the first failure. */
ATTUNE_API attune_status attune_prewarm(attune_context* context, const attune_problem* problems,
                                        size_t num_problems);

/* Once for each buffer, before its first run with this plan, and again after another plan used it
 * (attune_plan_info.zeroed_bytes says when that is not needed): kernels count tiles there and leave
 * it zero. A buffer serves one run at a time. Runs on a CPU need no preparation. A GPU run on a
 * buffer that was not prepared gives nonsense or faults; with ATTUNE_CHECK_WORKSPACE=1 in the
 * environment each run looks first, and waits for the device to do so. */
ATTUNE_API attune_status attune_workspace_init(const attune_plan* plan, void* workspace,
                                               size_t workspace_bytes, void* stream);
/* Enqueues the launch on `stream` (a CUstream or cudaStream_t; ignored on a CPU, where it returns
 * when the work is done). Safe inside CUDA-graph capture. workspace: NULL if the plan needs none.
 * Where operands are not finite: a row of q that sees a score of NaN or +infinity has o and lse of
 * NaN; one whose scores are all -infinity counts as one that sees no key (o 0, lse -infinity). NaN
 * or infinity in a row of v may reach o of rows that do not see it, for a hidden key weighs 0, and
 * 0 * NaN is NaN: those of its tile. It never reaches rows that see no key, nor lse. */
ATTUNE_API attune_status attune_run(const attune_plan* plan, const attune_operands* operands,
                                    void* workspace, size_t workspace_bytes, void* stream);

/* A map of blocks of a problem's masks: mask_mod, mask_tensor, key_lengths, documents, prefix, chunk.
 * Init sets all but data: contiguous, rows at multiples of 16 bytes, for one batch entry or head where
 * the masks tell them not apart. Bytes is what data must hold, aligned to 16; 0 for a map that is none.
 * Build fills it: it looks up or compiles a kernel, then enqueues it on `stream` (NULL on a CPU, where
 * it returns when the work is done). Call it once outside a CUDA graph's capture before one inside.
 * `scores`: what the masks capture, as of the coming runs; positions count from 0. Such runs have
 * problem.block_map = ATTUNE_BLOCK_MAP_SKIPS and operands.block_map. */
ATTUNE_API attune_status attune_block_map_init_sized(const attune_problem* problem,
                                                     attune_block_map* map, size_t size);
#define attune_block_map_init(problem, map) \
  attune_block_map_init_sized((problem), (map), sizeof(attune_block_map))
ATTUNE_API size_t attune_block_map_bytes(const attune_block_map* map);
ATTUNE_API attune_status attune_block_map_build(attune_context* context,
                                                const attune_problem* problem,
                                                const attune_score_operands* scores,
                                                const attune_block_map* map, void* stream);

/* The part of P that kernels drop where attune_problem.dropout is this: the nearest of 0/256 to 255/256.
 * What is kept is multiplied by 1 / (1 - rate). -1 for what no problem may have. */
ATTUNE_API double attune_dropout_rate(float dropout);
/* What kernels keep with this seed and offset (attune_dropout_operands), on the host: writes 1 or 0 to
 * each of keep [batch, num_heads_q, seqlen_q, seqlen_kv], contiguous. For tests and other frameworks. */
ATTUNE_API attune_status attune_dropout_mask(float dropout, uint64_t seed, uint64_t offset,
                                             int64_t batch, int64_t num_heads_q, int64_t seqlen_q,
                                             int64_t seqlen_kv, uint8_t* keep);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_H_ */
