/* SPDX-License-Identifier: Apache-2.0
 * attune: attention kernels made for the machine they run on. The C11 interface of libattune.so.
 *
 * Start here: the sample below is the body of main; attune_cache_types.h has one for decoding. Then
 * read the table in attune_problem_types.h: which op and which fields compute what you want.
 * attune_types.h lists the other types. attune_score.h has score programs, maps of blocks and
 * dropout, attune_cascade.h requests that share prefixes, attune.hpp the C++17 interface.
 * Include <attune/attune.h>; build with `cc -std=c11 main.c $(pkg-config --cflags --libs attune)`.
 *
 *   // q, k, v, o [batch, seqlen, heads, head_dim] are yours, in the memory of the device. So is
 *   // stream (NULL on a CPU). Each call returns a status: check that it is ATTUNE_OK.
 *   attune_context* context;
 *   attune_problem problem;
 *   attune_plan* plan;
 *   attune_plan_info info = {.size = sizeof info};
 *   attune_operands operands;
 *   attune_context_create(NULL, &context);  // the GPU if there is one, else the CPU
 *   attune_problem_parse("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=1024", &problem);
 *   attune_plan_get(context, &problem, NULL, &plan);  // looks up, or compiles: may take a second
 *   attune_plan_get_info(plan, &info);
 *   void* workspace = allocate(info.workspace_bytes);  // on the device, aligned to 256 bytes
 *   attune_workspace_init(plan, workspace, info.workspace_bytes, stream);  // once per buffer
 *   attune_operands_contiguous(&problem, q, k, v, o, NULL, &operands);
 *   attune_run(plan, &operands, workspace, info.workspace_bytes, stream);  // only enqueues
 *   attune_plan_release(plan);
 *   attune_context_destroy(context);
 *
 * Errors: functions return a status, and attune_last_error has the sentence. No function throws,
 * aborts or exits. None prints, except one line (AT106, see attune_context_options.log).
 * Sizes: each struct starts with its size, so programs built with an older header keep working.
 * Functions that fill a struct are macros, which pass the size that the caller compiled. Functions
 * that return a status refuse a size below the struct's first version or above 65536. Functions
 * that return void write as many bytes as the size says, or none if it is below 8 or above 65536.
 * Threads: all threads may use a context or plan at once. attune_run takes no lock and allocates
 * nothing. Compilation for a CPU runs on its own thread with a stack of 8 MB. If memory runs out
 * during it, clang may end the process. Kernels from bundles and stores need no clang.
 * Fork: a child may run the CPU plans that it holds, on one thread, and release them. It may call
 * everything else if no other thread of the parent was inside attune at the fork. A GPU belongs to
 * the process that opened it, as with CUDA itself.
 */
#ifndef ATTUNE_ATTUNE_H_
#define ATTUNE_ATTUNE_H_

#include "attune/attune_score.h"
#include "attune/attune_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTUNE_ABI_VERSION 2

/* ---- Errors and versions ---- */

/* Returns the last failure of the calling thread, as a sentence of at most 4095 bytes; "" if there
 * was none. */
ATTUNE_API const char* attune_last_error(void);
/* Returns the name of a status, for instance "invalid argument". */
ATTUNE_API const char* attune_status_name(attune_status status);
/* Returns the version of the library in the form "MAJOR.MINOR.PATCH". */
ATTUNE_API const char* attune_version(void);
/* Returns the ATTUNE_ABI_VERSION that the library was built with. */
ATTUNE_API int32_t attune_abi_version(void);

/* ---- Contexts: a device, and the files that are searched for tuned kernels ---- */

/* Sets the defaults that attune_context_types.h names. */
ATTUNE_API void attune_context_options_init_sized(attune_context_options* options, size_t size);
#define attune_context_options_init(options) \
  attune_context_options_init_sized((options), sizeof(attune_context_options))
/* Opens the device and the stores. options NULL = all defaults. On failure *context is NULL. */
ATTUNE_API attune_status attune_context_create(const attune_context_options* options,
                                               attune_context** context);
/* Waits for calls on this context that are under way, then frees it. Its log function is not called
 * afterwards. Plans that are still held keep what they need. context may be NULL. */
ATTUNE_API void attune_context_destroy(attune_context* context);
/* Reads the stores again. Later calls of attune_plan_get choose from the new contents. Plans that
 * the caller holds do not change, and loaded kernels are not loaded again. */
ATTUNE_API attune_status attune_context_reload(attune_context* context);
/* Returns the device's name, for instance "sm_90 NVIDIA H200" or "cpu:znver4 AMD EPYC ..., 8
 * threads". The text lives as long as the context. */
ATTUNE_API const char* attune_context_device(const attune_context* context);
/* Writes the SHA-256 of the pins from which the context chooses kernels: its pin file, or the pins
 * that follow from its stores and bundles for this device. Ranks with the same version of attune
 * and the same 32 bytes run the same kernels. */
ATTUNE_API attune_status attune_context_pin_digest(attune_context* context, uint8_t digest[32]);

/* ---- Problems: what one call computes ---- */

/* Sets the defaults that attune_problem_types.h names. */
ATTUNE_API void attune_problem_init_sized(attune_problem* problem, size_t size);
#define attune_problem_init(problem) attune_problem_init_sized((problem), sizeof(attune_problem))
/* Reads key=value pairs with the names of attune_problem's fields, and head_dim, seqlen and
 * scale_block, which set two fields. heads is Q/KV, scale is softmax_scale, window is LEFT:RIGHT
 * with "-" for an open side. Heads, head dims and lengths must be given, and no key twice. Parsing
 * reads no file. `attune tune --help` lists all keys. Examples, after the first without these keys:
 *   attention     dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=2048,
 *                 mask=causal_bottom_right,window=1024:0,scale=0.1
 *   8 bits        dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,accuracy=fast,scale_block=128
 *   quantisation  op=quantise,dtype=bf16,dtype_o=e4m3,rotation=hadamard
 *   two results   op=merge,dtype=fp32,dtype_kv=bf16
 *   a cache       op=attention_kvcache,batch=32,seqlen_q=1,seqlen_kv=8192,page_size=16
 *   its new rows  op=append_kv,rotary=fp32 */
ATTUNE_API attune_status attune_problem_parse_sized(const char* text, attune_problem* problem,
                                                    size_t size);
#define attune_problem_parse(text, problem) \
  attune_problem_parse_sized((text), (problem), sizeof(attune_problem))
/* Returns ATTUNE_OK if a kernel for the problem exists here. `reasons` (or NULL) gets one line per
 * template, cut to fit. */
ATTUNE_API attune_status attune_problem_check(attune_context* context,
                                              const attune_problem* problem, char* reasons,
                                              size_t capacity);

/* ---- Operands: the memory of one run ---- */

/* Describes contiguous operands, in which each row of a head starts at a multiple of 16 bytes. Sets
 * no factors, and sets pointers to more operands to NULL: over a cache, set `operands->cache` to an
 * attune_cache_operands afterwards. If the problem is refused, all fields are 0. */
ATTUNE_API attune_status attune_operands_contiguous_sized(const attune_problem* problem, void* q,
                                                          void* k, void* v, void* o, float* lse,
                                                          attune_operands* operands, size_t size);
#define attune_operands_contiguous(problem, q, k, v, o, lse, operands)               \
  attune_operands_contiguous_sized((problem), (q), (k), (v), (o), (lse), (operands), \
                                   sizeof(attune_operands))
/* Describes contiguous gradients of ATTUNE_ATTENTION_BACKWARD. Sets dlse to NULL. For problems with
 * score_gradient, set dscores.data afterwards. */
ATTUNE_API attune_status attune_gradients_contiguous_sized(const attune_problem* problem,
                                                           void* dout, void* dq, void* dk, void* dv,
                                                           attune_gradient_operands* gradients,
                                                           size_t size);
#define attune_gradients_contiguous(problem, dout, dq, dk, dv, gradients)             \
  attune_gradients_contiguous_sized((problem), (dout), (dq), (dk), (dv), (gradients), \
                                    sizeof(attune_gradient_operands))
/* Describes contiguous new rows and angles of ATTUNE_APPEND_KV. Pass NULL for cos and sin if the
 * problem has no rotary. Sets the lists to NULL. */
ATTUNE_API attune_status attune_append_contiguous_sized(const attune_problem* problem, void* k,
                                                        void* v, void* cos, void* sin,
                                                        attune_append_operands* append,
                                                        size_t size);
#define attune_append_contiguous(problem, k, v, cos, sin, append)             \
  attune_append_contiguous_sized((problem), (k), (v), (cos), (sin), (append), \
                                 sizeof(attune_append_operands))
/* Sets the defaults that attune_append_types.h names. */
ATTUNE_API void attune_rotary_init_sized(attune_rotary* rotary, size_t size);
#define attune_rotary_init(rotary) attune_rotary_init_sized((rotary), sizeof(attune_rotary))
/* Writes cos and sin [num_positions, rotary_dim / 2] on the host, from position first_position on.
 * Angles and frequencies are rounded to fp32, as transformers does. */
ATTUNE_API attune_status attune_rotary_table(const attune_rotary* rotary, int64_t first_position,
                                             int64_t num_positions, float* cos, float* sin);

/* ---- Plans: a kernel that is ready to run ---- */

/* Returns a plan for the problem; release it after use. Each kernel is loaded or compiled at most
 * once. Problems whose masks and windows hide the same keys share a plan. The context keeps the
 * 2048 plans used last. A plan that you hold stays valid; making a dropped plan again compiles
 * nothing. layout: NULL for contiguous operands, else operands with the strides of the coming runs,
 * whose addresses may be NULL. Kernels that cannot read these strides are not chosen. */
ATTUNE_API attune_status attune_plan_get(attune_context* context, const attune_problem* problem,
                                         const attune_operands* layout, attune_plan** plan);
/* Frees the plan. plan may be NULL. */
ATTUNE_API void attune_plan_release(attune_plan* plan);
/* Fills info. Set info->size to sizeof(attune_plan_info) before the call. */
ATTUNE_API attune_status attune_plan_get_info(const attune_plan* plan, attune_plan_info* info);
/* Returns several lines of text: the kernel, the rung that chose it, the age of its measurement,
 * why other kernels were not chosen, and which files were damaged or refused. The text lives as
 * long as the plan. The command `attune explain` prints it. */
ATTUNE_API const char* attune_plan_explain(const attune_plan* plan);
/* Makes a plan for each problem, so that attune_plan_get only looks up. Stops at the first
 * failure. */
ATTUNE_API attune_status attune_prewarm(attune_context* context, const attune_problem* problems,
                                        size_t num_problems);

/* ---- Runs ---- */

/* Prepares a buffer before its first run with this plan, and again after another plan used it,
 * unless zeroed_bytes of attune_plan_info allows to skip that. Kernels count tiles in these bytes
 * and leave them zero. A buffer serves one run at a time. Runs on a CPU need no preparation. A GPU
 * run on an unprepared buffer gives wrong results or faults. With ATTUNE_CHECK_WORKSPACE=1 in the
 * environment each run checks the buffer first, which waits for the device. workspace may be NULL
 * if the plan needs none. */
ATTUNE_API attune_status attune_workspace_init(const attune_plan* plan, void* workspace,
                                               size_t workspace_bytes, void* stream);
/* Enqueues the launch on `stream`, a CUstream or cudaStream_t. On a CPU stream is ignored, and the
 * function returns when the work is done. A CUDA graph may capture it. workspace may be NULL if the
 * plan needs none.
 * If operands are not finite: a row of q that sees a score of NaN or +infinity gets o and lse of
 * NaN. A row whose scores are all -infinity counts as a row that sees no key: o is 0 and lse is
 * -infinity. NaN or infinity in a row of v may reach o of rows of q in the same tile that do not
 * see this key: a hidden key has weight 0, and 0 * NaN is NaN. It never reaches o of rows that see
 * no key, nor lse. */
ATTUNE_API attune_status attune_run(const attune_plan* plan, const attune_operands* operands,
                                    void* workspace, size_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_H_ */
