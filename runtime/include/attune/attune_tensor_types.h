/* SPDX-License-Identifier: Apache-2.0
 * Operands in memory: a tensor, and the factors of an 8-bit tensor. attune_types.h includes this
 * file.
 */
#ifndef ATTUNE_ATTUNE_TENSOR_TYPES_H_
#define ATTUNE_ATTUNE_TENSOR_TYPES_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor [batch, seqlen, num_heads, head_dim], contiguous in head_dim. Strides count elements and
 * must be multiples of 16 bytes. A stride of 0 repeats one batch entry, row or head of an input.
 * Otherwise the parts of a tensor must not overlap. */
typedef struct attune_tensor {
  /* The address of the first element, on the device and aligned to 16 bytes. */
  void* data;
  /* The number of elements from one batch entry to the next. */
  int64_t batch_stride;
  /* The number of elements from one row to the next. */
  int64_t row_stride;
  /* The number of elements from one head to the next. */
  int64_t head_stride;
} attune_tensor;

/* Factors that turn 8-bit elements into values: value = element * factor. Factors must be at
 * least 0, which is not checked. The factor of row r in head h of batch entry b is at
 *   data[b * batch_stride + h / heads_per_scale * head_stride + r / scale_block * block_stride]
 * If all strides are 0, the tensor has one factor. scale_block is a field of attune_problem. */
typedef struct attune_scale {
  /* The address of the first factor: fp32, on the device. NULL = each factor is 1. */
  float* data;
  /* The number of factors from one batch entry to the next. */
  int64_t batch_stride;
  /* The number of factors from one group of heads to the next. */
  int64_t head_stride;
  /* The number of factors from one block of rows to the next. */
  int64_t block_stride;
  /* The number of consecutive heads that share a factor; must divide the number of heads. 0 means
   * 1. If q has one factor per head of k and v, set it to num_heads_q / num_heads_kv. */
  int32_t heads_per_scale;
} attune_scale;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_TENSOR_TYPES_H_ */
