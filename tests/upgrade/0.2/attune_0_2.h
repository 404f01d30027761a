/* SPDX-License-Identifier: Apache-2.0
 * The declarations of attune 0.2's header that program.c needs, as they were. Never edit them: they
 * are what a program was compiled against. upgrade_test.py reads the names of the functions.
 */
#ifndef ATTUNE_UPGRADE_ATTUNE_0_2_H_
#define ATTUNE_UPGRADE_ATTUNE_0_2_H_

#include <stddef.h>
#include <stdint.h>

typedef struct attune_context attune_context;
typedef struct attune_plan attune_plan;
typedef struct attune_program attune_program;
typedef int32_t attune_status; /* an enumeration in the header */

enum { ATTUNE_OK = 0, ATTUNE_FP32 = 0, ATTUNE_CAUSAL_BOTTOM_RIGHT = 2 };

typedef struct attune_context_options {
  size_t size;
  const char* target;
  const char* store;
  const char* const* more_stores;
  size_t num_more_stores;
  const char* const* bundles;
  size_t num_bundles;
  int32_t policy;
  int32_t no_jit;
  const char* capture_file;
  void (*log)(void* user, int level, const char* message);
  void* log_user;
  const char* const* nvrtc_folders;
  size_t num_nvrtc_folders;
  const char* pin;
  const void* memory_bundles;
  size_t num_memory_bundles;
} attune_context_options;

typedef struct attune_problem {
  size_t size;
  int32_t dtype, mask, head_dim_qk, head_dim_v, num_heads_q, num_heads_kv;
  int64_t batch, seqlen_q, seqlen_kv, window_left, window_right;
  float softmax_scale;
  int32_t reserved, op, dtype_kv, dtype_o, accuracy, v_layout, scale_block_q, scale_block_kv;
  int32_t rotation;
  float softcap;
  int32_t bias, relative_bias, alibi, mask_tensor, key_lengths, documents, prefix, chunk;
  const attune_program *score_mod, *mask_mod;
  int32_t sinks, block_map, gradients;
  float dropout;
  int32_t page_size, packed_q;
  int64_t num_pages;
  int32_t packed_kv, score_gradient, repeats, accumulate, batch_invariant;
  int32_t rotary, rotary_dim, rotary_interleaved, rotary_q, v_in_k;
  int32_t load, deterministic, kv_factors;
} attune_problem;

typedef struct attune_tensor {
  void* data;
  int64_t batch_stride, row_stride, head_stride;
} attune_tensor;

typedef struct attune_scale {
  float* data;
  int64_t batch_stride, head_stride, block_stride;
  int32_t heads_per_scale;
} attune_scale;

typedef struct attune_operands {
  size_t size;
  attune_tensor q, k, v, o;
  float* lse;
  int64_t lse_batch_stride, lse_head_stride;
  attune_scale q_scale, k_scale, v_scale, o_scale;
  const void *scores, *block_map, *gradients, *dropout, *cache, *append;
} attune_operands;

typedef struct attune_plan_info {
  size_t size;
  int32_t rung, registers;
  const char *kernel_template, *arch, *config;
  double expected_us;
  size_t workspace_bytes;
  int64_t shared_bytes;
  size_t zeroed_bytes;
  int32_t device_ordinal, reserved;
} attune_plan_info;

const char* attune_last_error(void);
const char* attune_status_name(attune_status status);
void attune_context_options_init_sized(attune_context_options* options, size_t size);
#define attune_context_options_init(options) \
  attune_context_options_init_sized((options), sizeof(attune_context_options))
attune_status attune_context_create(const attune_context_options* options,
                                    attune_context** context);
void attune_context_destroy(attune_context* context);
void attune_problem_init_sized(attune_problem* problem, size_t size);
#define attune_problem_init(problem) attune_problem_init_sized((problem), sizeof(attune_problem))
attune_status attune_operands_contiguous_sized(const attune_problem* problem, void* q, void* k,
                                               void* v, void* o, float* lse,
                                               attune_operands* operands, size_t size);
#define attune_operands_contiguous(problem, q, k, v, o, lse, operands)               \
  attune_operands_contiguous_sized((problem), (q), (k), (v), (o), (lse), (operands), \
                                   sizeof(attune_operands))
attune_status attune_plan_get(attune_context* context, const attune_problem* problem,
                              const attune_operands* layout, attune_plan** plan);
void attune_plan_release(attune_plan* plan);
attune_status attune_plan_get_info(const attune_plan* plan, attune_plan_info* info);
attune_status attune_workspace_init(const attune_plan* plan, void* workspace,
                                    size_t workspace_bytes, void* stream);
attune_status attune_run(const attune_plan* plan, const attune_operands* operands, void* workspace,
                         size_t workspace_bytes, void* stream);

#endif /* ATTUNE_UPGRADE_ATTUNE_0_2_H_ */
