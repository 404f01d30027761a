/* SPDX-License-Identifier: Apache-2.0
 * The parts of attune_problem, which not every op has. attune_problem_types.h includes this file,
 * and its table says which parts an op uses. All zero is the default of each part. A problem must
 * leave the parts that its op does not use at zero. Fields called "flag" are 0 (the default) or 1.
 */
#ifndef ATTUNE_ATTUNE_PART_TYPES_H_
#define ATTUNE_ATTUNE_PART_TYPES_H_

#include <attune/attune_score_types.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Features that change or hide scores: for ATTUNE_PREFILL, ATTUNE_ATTENTION_BACKWARD,
 * ATTUNE_ATTENTION_KVCACHE and ATTUNE_BLOCK_MAP. They are applied in the order softcap, score_mod,
 * biases, alibi, masks. A feature that reads a tensor names it here; the call passes it in
 * attune_operands.scores. */
typedef struct attune_problem_scores {
  /* A program that changes scores, from attune_program_parse. NULL (default) = none. */
  const attune_program* score_mod;
  /* A program that hides keys. NULL (default) = none. */
  const attune_program* mask_mod;
  /* Scores become softcap * tanh(score / softcap). 0 (default) = no softcap. */
  float softcap;
  /* attune_score_tensor: the type of "bias" [batch, num_heads_q, seqlen_q, seqlen_kv], which is
   * added to the scores. A value of at most -1e30 hides the key. Default none. */
  int32_t bias;
  /* attune_score_tensor: the type of "relative_bias" [num_heads_q, seqlen_q + seqlen_kv - 1], which
   * is added to the scores. Its index is key - row + seqlen_q - 1. Default none. */
  int32_t relative_bias;
  /* Flag: subtracts slope * distance from the diagonal. Reads "alibi_slopes" [batch, num_heads_q],
   * fp32. */
  int32_t alibi;
  /* Flag: hides keys where "mask_tensor" [batch, num_heads_q, seqlen_q, seqlen_kv] is 0. Its
   * elements are bools of one byte. */
  int32_t mask_tensor;
  /* Flag: hides the keys from number key_lengths[batch] on. Reads "key_lengths" [batch], int32. */
  int32_t key_lengths;
  /* Flag: hides keys of other documents. Reads the int32 ids "documents_q" [batch, seqlen_q] and
   * "documents_kv" [batch, seqlen_kv]. */
  int32_t documents;
  /* Flag: masks as ATTUNE_CAUSAL_BOTTOM_RIGHT, but each row also sees the first prefix[batch] keys.
   * Reads "prefix" [batch], int32. mask must be ATTUNE_MASK_NONE. */
  int32_t prefix;
  /* The number of positions per chunk. A row sees only keys of its chunk. 0 (default) = none. */
  int32_t chunk;
  /* attune_score_tensor: the type of "sinks" [num_heads_q], one logit per head. exp(logit) is
   * added to the softmax denominator, also in lse, without softmax_scale. Default none. */
  int32_t sinks;
  /* attune_block_map_use: the meaning of attune_operands.block_map. Default none. */
  int32_t block_map;
  /* For later fields. Must be 0. */
  int32_t reserved[9];
} attune_problem_scores;

/* For ATTUNE_ATTENTION_BACKWARD. */
typedef struct attune_problem_backward {
  /* Sum of attune_gradient: the gradients to compute. 0 (default) = of q, k and v. */
  int32_t gradients;
  /* attune_score_gradient: the call computes the gradient of this tensor instead of q, k and v.
   * Default none. */
  int32_t score_gradient;
  /* For score_gradient LOAD and LOAD_DIAGONALS: the number of the load of floats in score_mod,
   * counted from 0 in the order of attune_program_nodes. Default 0. */
  int32_t load;
  /* Sum of attune_repeats: the axes along which this tensor repeats one value. Default 0. */
  int32_t repeats;
  /* Flag: dq, dk and dv are fp32, and the call adds to them. */
  int32_t accumulate;
  /* Flag: gradients have the same bits in every run. Otherwise a kernel may sum in a different
   * order in each run, which can be faster. */
  int32_t deterministic;
  /* For later fields. Must be 0. */
  int32_t reserved[10];
} attune_problem_backward;

/* The cache of ATTUNE_ATTENTION_KVCACHE and ATTUNE_APPEND_KV. */
typedef struct attune_problem_cache {
  /* The number of pages, slots or packed rows of k and v. 0 (default) = as many as `batch` requests
   * of seqlen_kv keys need. */
  int64_t num_pages;
  /* Keys per page, at most 65536. 0 (default) = no pages: each request has a slot. */
  int32_t page_size;
  /* Flag: the rows of all requests follow each other without gaps. */
  int32_t packed_q;
  /* Flag, ATTUNE_ATTENTION_KVCACHE only: the keys of all requests follow each other without gaps or
   * pages. */
  int32_t packed_kv;
  /* Flag, ATTUNE_ATTENTION_KVCACHE only: the bits of a request's result do not depend on the other
   * requests. */
  int32_t batch_invariant;
  /* Flag, ATTUNE_ATTENTION_KVCACHE, and ATTUNE_ATTENTION_BACKWARD with key_indices: v is the first
   * head_dim_v columns of k. attune_operands.v must then have the address and strides of k. The
   * gradient dk then includes that of v, and dv is not read. */
  int32_t v_in_k;
  /* attune_kv_factors: the factors of an 8-bit or 4-bit cache. Default ATTUNE_KV_FACTORS_HEADS. */
  int32_t kv_factors;
  /* With key_indices: the length of each row's list of keys. 0
   * (default) = seqlen_kv. */
  int64_t listed_keys;
  /* attune_key_indices, ATTUNE_ATTENTION_KVCACHE and ATTUNE_ATTENTION_BACKWARD only: each row of q
   * sees only the keys that its list names. Gradients take positions, and all of dq, dk and dv are
   * computed. The lists are in attune_operands.cache. Default ATTUNE_KEY_INDICES_NONE. */
  int32_t key_indices;
  /* For later fields. Must be 0. */
  int32_t reserved[5];
} attune_problem_cache;

/* The rotary embedding of ATTUNE_APPEND_KV. */
typedef struct attune_problem_append {
  /* attune_score_tensor: the type of cos and sin, which rotate k. Default none: no rotation. */
  int32_t rotary;
  /* The number of leading columns that are rotated; must be even. 0 (default) = all. */
  int32_t rotary_dim;
  /* Flag: columns 2 i and 2 i + 1 are a pair. Otherwise columns i and i + rotary_dim / 2 are. */
  int32_t rotary_interleaved;
  /* Flag: q is rotated too, and the result is written to o. */
  int32_t rotary_q;
  /* For later fields. Must be 0. */
  int32_t reserved[8];
} attune_problem_append;

/* For ATTUNE_QUANTISE. */
typedef struct attune_problem_quantise {
  /* attune_rotation. Default ATTUNE_ROTATION_NONE. */
  int32_t rotation;
  /* For later fields. Must be 0. */
  int32_t reserved[7];
} attune_problem_quantise;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_PART_TYPES_H_ */
