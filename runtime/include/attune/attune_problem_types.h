/* SPDX-License-Identifier: Apache-2.0
 * attune_problem: what one call computes. attune_types.h includes this file.
 *
 * A problem has fields that every op reads, and parts. Each op uses the parts of its line; leave
 * other parts as attune_problem_init sets them. The last column lists the members of
 * attune_operands that the op needs in addition to q, k, v and o. `scores`, `dropout`, `gradients`,
 * `cache` and `append` point to structs of attune_{score,dropout,gradient,cache,append}_types.h:
 * set operands.cache to the address of an attune_cache_operands. lse and factors are in
 * attune_types.h.
 *
 *   you want                  | op                        | parts             | more operands
 *   attention                 | ATTUNE_PREFILL            | scores            | scores, dropout
 *   its gradients             | ATTUNE_ATTENTION_BACKWARD | scores, backward  | lse, gradients,
 *                             |                           |                   | scores, dropout
 *   attention over a cache    | ATTUNE_ATTENTION_KVCACHE  | cache; of scores: | cache; scores and
 *                             |                           | softcap, alibi,   | factors if used
 *                             |                           | score_mod, sinks, |
 *                             |                           | mask_mod          |
 *   rows written into a cache | ATTUNE_APPEND_KV          | cache, append     | cache, append
 *   tensors of 8 bits         | ATTUNE_QUANTISE           | quantise          | o_scale
 *   two results joined        | ATTUNE_MERGE              | none              | q_scale, k_scale
 *   a map of masked blocks    | ATTUNE_BLOCK_MAP          | scores: masks     | scores
 *   scores of an indexer      | ATTUNE_INDEX_SCORES       | none              | q_scale, k_scale,
 *                             |                           |                   | v_scale
 *   the keys with the largest | ATTUNE_TOP_K              | cache.listed_keys | lse, v_scale
 *   scores                    |                           |                   |
 */
#ifndef ATTUNE_ATTUNE_PROBLEM_TYPES_H_
#define ATTUNE_ATTUNE_PROBLEM_TYPES_H_

#include <attune/attune_enum_types.h>
#include <attune/attune_part_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One call: fields that every op has, and parts. Start from attune_problem_init, which
 * sets the defaults below, or from attune_problem_parse. A struct of zeros is not the default: head
 * dims and heads of 0 are refused, and windows of 0 show only the diagonal. */
typedef struct attune_problem {
  /* sizeof(attune_problem), set by attune_problem_init. */
  size_t size;

  /* ---- Operation and types ---- */
  /* attune_op. Default ATTUNE_PREFILL. */
  int32_t op;
  /* attune_dtype of q; also of k, v and o unless dtype_kv or dtype_o is set. Default ATTUNE_BF16.
   * Sums are accumulated in fp32. */
  int32_t dtype;
  /* attune_dtype of k and v. Default ATTUNE_DTYPE_DEFAULT: the type of q. */
  int32_t dtype_kv;
  /* attune_dtype of o. Default ATTUNE_DTYPE_DEFAULT: the type of q, or bf16 if q has 8 bits. */
  int32_t dtype_o;

  /* ---- Shape ---- */
  /* The number of elements in one head of q and k: a multiple of 8 from 16 to 576, or to 256 with
   * 8-bit operands other than caches. Default 128. */
  int32_t head_dim_qk;
  /* The number of elements in one head of v and o: a multiple of 8 from 16 to 512, or to 256 with
   * 8-bit operands other than caches. Default 128. */
  int32_t head_dim_v;
  /* The number of heads of q and o. Default 1. */
  int32_t num_heads_q;
  /* The number of heads of k and v; must divide num_heads_q. Default 1. */
  int32_t num_heads_kv;
  /* The number of sequences, or over a cache of requests. Default 1. */
  int64_t batch;
  /* Rows of q. Over a cache: the largest number of rows that one request may have. Default 0: the
   * call computes nothing. */
  int64_t seqlen_q;
  /* Rows of k and v, called keys. Over a cache: the largest number of keys that one request may
   * have. Default 0. */
  int64_t seqlen_kv;

  /* ---- Mask, scale and dropout ---- */
  /* The number of keys left of the diagonal that a row sees. Negative = all. Default -1. */
  int64_t window_left;
  /* The number of keys right of the diagonal that a row sees. Negative = all. Default -1. A causal
   * mask hides them all. */
  int64_t window_right;
  /* attune_mask. Default ATTUNE_MASK_NONE. Over a cache: none or ATTUNE_CAUSAL_BOTTOM_RIGHT. */
  int32_t mask;
  /* The factor of q k^T. 0 (default) = 1 / sqrt(head_dim_qk). */
  float softmax_scale;
  /* The fraction of P that is dropped, rounded to 1/256: at least 0, below 1. Default 0. For
   * ATTUNE_PREFILL and ATTUNE_ATTENTION_BACKWARD. */
  float dropout;

  /* ---- 8-bit operands, and fp32 on a GPU ---- */
  /* attune_accuracy, for 8-bit operands and for fp32. Default ATTUNE_ACCURATE. */
  int32_t accuracy;
  /* attune_v_layout of an 8-bit v, or of o of ATTUNE_QUANTISE. Default ATTUNE_V_ROWS. */
  int32_t v_layout;
  /* The number of consecutive rows of q that share one factor: a multiple of 16. 0 (default) = all
   * rows of a head. */
  int32_t scale_block_q;
  /* The number of rows of k, and of v, that share one factor. 0 (default) = all rows of a head. */
  int32_t scale_block_kv;
  /* 1 = ATTUNE_PREFILL writes the largest logit of each head into o_scale, fp32 [num_heads_q]: the
   * maximum of softmax_scale * q k^T over all rows of all batch entries and the keys that they see,
   * without sinks; -infinity if they see none. 0 (default) = it does not. Refused with 8-bit
   * operands, and with softcap, biases, slopes and score programs, which change scores. */
  int32_t max_logits;
  /* For later fields. Must be 0. */
  int32_t reserved[6];

  /* ---- Parts ---- */
  attune_problem_scores scores;
  attune_problem_backward backward;
  attune_problem_cache cache;
  attune_problem_append append;
  attune_problem_quantise quantise;
} attune_problem;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_PROBLEM_TYPES_H_ */
