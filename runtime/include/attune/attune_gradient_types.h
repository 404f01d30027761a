/* SPDX-License-Identifier: Apache-2.0
 * ATTUNE_ATTENTION_BACKWARD: gradients of attention. attune_types.h includes this file.
 *
 * The problem is the forward problem with op = ATTUNE_ATTENTION_BACKWARD: same masks, scale and
 * score features. attune_operands holds q, k, v, o and lse of the forward call, which are read;
 * `scores` captures the same tensors. attune_gradient_operands holds the rest. Gradients are
 * written whole: rows and keys that take no part get 0.
 *
 * deterministic = 1: each run of one plan gives the same bits. Otherwise some kernels sum dq in
 * another order each time, which is faster.
 *
 * accumulate = 1: dq, dk and dv are fp32, whatever type q, k and v have, and the call adds to them.
 * This serves a sequence whose keys and rows are split over several calls. lse and o are then those
 * of the whole sequence.
 *
 * score_gradient: the gradient of a bias, of slopes, of sinks or of a tensor that score_mod loads
 * is a separate problem. It reads the same operands and writes only dscores. If the forward
 * tensor repeats a value along an axis (stride 0), `repeats` names that axis. dscores then has one
 * step there: the sum over the axis.
 */
#ifndef ATTUNE_ATTUNE_GRADIENT_TYPES_H_
#define ATTUNE_ATTUNE_GRADIENT_TYPES_H_

#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Terms of attune_problem.gradients, which is a sum. A plan computes only these gradients. */
typedef enum attune_gradient {
  ATTUNE_GRADIENT_Q = 1,
  ATTUNE_GRADIENT_K = 2,
  ATTUNE_GRADIENT_V = 4
} attune_gradient;

/* Values of attune_problem.score_gradient. dscores is fp32 and has the shape of the comment, as
 * [batch, rows, heads, columns]. */
typedef enum attune_score_gradient {
  ATTUNE_SCORE_GRADIENT_NONE = 0,
  /* [batch, seqlen_q, num_heads_q, seqlen_kv]. */
  ATTUNE_SCORE_GRADIENT_BIAS = 1,
  /* [1, 1, num_heads_q, seqlen_q + seqlen_kv - 1]. */
  ATTUNE_SCORE_GRADIENT_RELATIVE_BIAS = 2,
  /* The gradient of the slopes: [batch, 1, 1, num_heads_q]. */
  ATTUNE_SCORE_GRADIENT_ALIBI = 3,
  /* [1, 1, 1, num_heads_q]. */
  ATTUNE_SCORE_GRADIENT_SINKS = 4,
  /* The gradient of what score_mod loads from a tensor of floats at load attune_problem.load.
   * dscores has a value for each row and key, as for a bias. The gradient of an element of the
   * tensor is the sum over all rows and keys that load it. attune_program_nodes has the indices. */
  ATTUNE_SCORE_GRADIENT_LOAD = 5,
  /* Like LOAD, but dscores has a value for each distance, as for relative_bias. */
  ATTUNE_SCORE_GRADIENT_LOAD_DIAGONALS = 6
} attune_score_gradient;

/* Terms of attune_problem.repeats, which is a sum: any for bias and load; heads for relative_bias
 * and load_diagonals; batch and heads for alibi; none for sinks. */
typedef enum attune_repeats {
  ATTUNE_REPEATS_BATCH = 1,
  ATTUNE_REPEATS_HEADS = 2,
  ATTUNE_REPEATS_ROWS = 4,
  ATTUNE_REPEATS_KEYS = 8
} attune_repeats;

/* Start from attune_gradients_contiguous. Gradients that the problem does not ask for are neither
 * read nor written. */
typedef struct attune_gradient_operands {
  /* sizeof(attune_gradient_operands), set by attune_gradients_contiguous. */
  size_t size;

  /* ---- Gradients ---- */
  /* Read: the gradient of o, [batch, seqlen_q, num_heads_q, head_dim_v]. */
  attune_tensor dout;
  /* Written: [batch, seqlen_q, num_heads_q, head_dim_qk]. */
  attune_tensor dq;
  /* Written: [batch, seqlen_kv, num_heads_kv, head_dim_qk]. */
  attune_tensor dk;
  /* Written: [batch, seqlen_kv, num_heads_kv, head_dim_v]. */
  attune_tensor dv;

  /* ---- Gradient of lse ---- */
  /* Read: fp32 [batch, num_heads_q, seqlen_q]. NULL = 0 everywhere. */
  const float* dlse;
  /* Elements from one batch entry to the next. Both strides 0 = contiguous. */
  int64_t dlse_batch_stride;
  /* Elements from one head to the next. */
  int64_t dlse_head_stride;

  /* ---- Gradient of a score feature ---- */
  /* Written, for problems with score_gradient. */
  attune_tensor dscores;
} attune_gradient_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_GRADIENT_TYPES_H_ */
