/* SPDX-License-Identifier: Apache-2.0
 * Operands in memory: tensors and factors. attune_types.h includes this file.
 */
#ifndef ATTUNE_ATTUNE_TENSOR_TYPES_H_
#define ATTUNE_ATTUNE_TENSOR_TYPES_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_tensor { /* [batch, seqlen, num_heads, head_dim], contiguous in head_dim */
  void* data;                  /* 16-byte aligned, on the device */
  int64_t batch_stride;        /* strides in elements, multiples of 16 bytes; inputs may
                                  repeat with 0, nothing may overlap */
  int64_t row_stride;
  int64_t head_stride;
} attune_tensor;

/* Factors that turn 8-bit elements into values: 0 or more, on which kernels rely. That of row r in head h stands at
 * b * batch_stride + h / heads_per_scale * head_stride + r / scale_block * block_stride. One factor
 * for the whole tensor: all strides 0. */
typedef struct attune_scale {
  float* data; /* on the device; NULL = 1 everywhere */
  int64_t batch_stride;
  int64_t head_stride;
  int64_t block_stride;
  int32_t heads_per_scale; /* consecutive heads with one factor; 0 = 1. For q with a factor for each
                              kv head: num_heads_q / num_heads_kv */
} attune_scale;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_TENSOR_TYPES_H_ */
