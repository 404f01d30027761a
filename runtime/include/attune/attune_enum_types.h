/* SPDX-License-Identifier: Apache-2.0
 * The enumerations of a problem: operation, element types, mask, and choices for 8-bit operands.
 * attune_problem_types.h includes this file. Values are frozen, here and in all enumerations.
 */
#ifndef ATTUNE_ATTUNE_ENUM_TYPES_H_
#define ATTUNE_ATTUNE_ENUM_TYPES_H_

#ifdef __cplusplus
extern "C" {
#endif

/* The operation of a problem. attune_problem_types.h lists the fields and operands of each op. */
typedef enum attune_op {
  /* Attention: o = softmax(scale * q k^T + mask) v. */
  ATTUNE_PREFILL = 0,
  /* Quantisation: o = q in 8 bits, and one factor per block of rows in o_scale. */
  ATTUNE_QUANTISE = 1,
  ATTUNE_QUANTIZE = ATTUNE_QUANTISE,
  /* A map of blocks of the problem's masks, written to o. Use attune_block_map_build for it. */
  ATTUNE_BLOCK_MAP = 2,
  /* Joins the results of two attention calls over different keys. attune_types.h says how. */
  ATTUNE_MERGE = 3,
  /* Gradients of attention. See attune_gradient_types.h. */
  ATTUNE_ATTENTION_BACKWARD = 4,
  /* Attention over a cache of requests. See attune_cache_types.h. */
  ATTUNE_ATTENTION_KVCACHE = 5,
  /* Writes new rows of k and v into that cache. See attune_append_types.h. */
  ATTUNE_APPEND_KV = 6,
  /* The indices of the largest scores of each row. attune_types.h says how. */
  ATTUNE_TOP_K = 7,
  /* The scores by which an indexer chooses keys. attune_types.h says how. */
  ATTUNE_INDEX_SCORES = 8
} attune_op;

/* The type of one element. */
typedef enum attune_dtype {
  /* For dtype_kv and dtype_o only: the type follows from attune_problem.dtype. */
  ATTUNE_DTYPE_DEFAULT = -1,
  ATTUNE_FP32 = 0,
  ATTUNE_BF16 = 1,
  ATTUNE_FP16 = 2,
  /* 8 bits; the largest finite value is 448. */
  ATTUNE_E4M3 = 3,
  /* 8 bits; the largest finite value is 57344. For k and v, and for o of ATTUNE_QUANTISE. */
  ATTUNE_E5M2 = 4,
  /* 8 bits, -128 to 127. For k and v of a cache. */
  ATTUNE_INT8 = 5,
  /* 4 bits, -8 to 7. For k and v of a cache; attune_cache_types.h says how codes are packed. */
  ATTUNE_INT4 = 6,
  /* 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4 and 6 with a sign. For k and v of a cache. */
  ATTUNE_E2M1 = 7
} attune_dtype;

/* Query row i sees key column j if the mask's condition holds. The diagonal of a row is the last
 * key that its causal mask shows; with ATTUNE_MASK_NONE it is the diagonal of
 * ATTUNE_CAUSAL_BOTTOM_RIGHT. */
typedef enum attune_mask {
  /* Each row sees all keys. */
  ATTUNE_MASK_NONE = 0,
  /* j <= i. */
  ATTUNE_CAUSAL_TOP_LEFT = 1,
  /* j <= i + seqlen_kv - seqlen_q. */
  ATTUNE_CAUSAL_BOTTOM_RIGHT = 2
} attune_mask;

/* How exact a kernel must be, for problems with 8-bit operands and for fp32 on a GPU. Kernels of
 * one accuracy compete only with each other. */
typedef enum attune_accuracy {
  /* 8 bits: weights that dominate their row stay exact. The tensor cores' sums, which have few
   * bits, are added to longer sums about every 1000 keys. fp32 on a GPU: fp32 arithmetic, by the
   * slow reference kernel. */
  ATTUNE_ACCURATE,
  /* 8 bits: weights are rounded, and the tensor cores' sums are used alone. fp32 on a GPU: products
   * in tf32. */
  ATTUNE_FAST,
  /* fp32 only. On a GPU each number becomes the sum of two tf32 numbers, which is nearly fp32. */
  ATTUNE_SPLIT
} attune_accuracy;

/* The layout of an 8-bit v in attention, or of o in ATTUNE_QUANTISE. */
typedef enum attune_v_layout {
  /* [batch, seqlen, num_heads, head_dim], contiguous in head_dim, as every other tensor. */
  ATTUNE_V_ROWS = 0,
  /* [batch, num_heads, head_dim, seqlen], contiguous in seqlen. row_stride steps over head_dim. */
  ATTUNE_V_TRANSPOSED = 1
} attune_v_layout;

/* The transform of each row before ATTUNE_QUANTISE rounds it. */
typedef enum attune_rotation {
  ATTUNE_ROTATION_NONE = 0,
  /* Multiplies by an orthonormal Hadamard matrix, which spreads outliers over the row. q k^T stays
   * the same if q and k are both rotated. head_dim must be a power of two. */
  ATTUNE_ROTATION_HADAMARD = 1
} attune_rotation;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_ENUM_TYPES_H_ */
