/* SPDX-License-Identifier: Apache-2.0
 * ATTUNE_ATTENTION_BACKWARD: gradients of attention. attune_types.h includes this file.
 *
 * The problem is the forward problem with op = ATTUNE_ATTENTION_BACKWARD: same masks, scale and
 * score features. attune_operands holds q, k, v, o and lse of the forward call, which are read, and
 * the same `scores`. attune_gradient_operands holds the gradients. Every element of a gradient is
 * written: a row that sees no key, or a key that no row sees, gets 0.
 *
 * deterministic = 1: each run of one plan gives the same bits. Otherwise some kernels sum dq in a
 * different order in each run, which is faster.
 *
 * accumulate = 1: dq, dk and dv are fp32, whatever type q, k and v have, and the call adds to them.
 * Use this for a sequence whose keys and rows are split over several calls. lse and o must then be
 * from attention over the whole sequence.
 *
 * score_gradient: the gradient of a bias, of slopes, of sinks or of a tensor that score_mod loads
 * is a separate problem. It reads the same operands and writes only dscores. If the forward
 * tensor repeats a value along an axis (stride 0), `repeats` must name that axis. dscores then has
 * extent 1 there, with the sum over the axis.
 */
#ifndef ATTUNE_ATTUNE_GRADIENT_TYPES_H_
#define ATTUNE_ATTUNE_GRADIENT_TYPES_H_

#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Terms of attune_problem.backward.gradients, a sum. A plan computes only these gradients. */
typedef enum attune_gradient {
  ATTUNE_GRADIENT_Q = 1,
  ATTUNE_GRADIENT_K = 2,
  ATTUNE_GRADIENT_V = 4
} attune_gradient;

/* Values of attune_problem.backward.score_gradient. dscores is fp32. Its axes are [batch, rows,
 * heads, columns], with the extents given for each value. */
typedef enum attune_score_gradient {
  ATTUNE_SCORE_GRADIENT_NONE = 0,
  /* The gradient of the bias: [batch, seqlen_q, num_heads_q, seqlen_kv]. */
  ATTUNE_SCORE_GRADIENT_BIAS = 1,
  /* The gradient of the relative bias: [1, 1, num_heads_q, seqlen_q + seqlen_kv - 1]. */
  ATTUNE_SCORE_GRADIENT_RELATIVE_BIAS = 2,
  /* The gradient of the slopes: [batch, 1, 1, num_heads_q]. */
  ATTUNE_SCORE_GRADIENT_ALIBI = 3,
  /* The gradient of the sinks: [1, 1, 1, num_heads_q]. */
  ATTUNE_SCORE_GRADIENT_SINKS = 4,
  /* The gradient of the values that one load of score_mod reads from a tensor of floats.
   * attune_problem.backward.load is the number of the load. dscores has a value for each row and
   * key, as for a bias. The gradient of an element of the tensor is the sum over all rows and keys
   * that load it. attune_program_nodes returns the indices. */
  ATTUNE_SCORE_GRADIENT_LOAD = 5,
  /* Like LOAD, but dscores has a value for each distance, as for relative_bias. */
  ATTUNE_SCORE_GRADIENT_LOAD_DIAGONALS = 6
} attune_score_gradient;

/* Terms of attune_problem.backward.repeats, which is a sum. Bias and load may have any term,
 * relative_bias and load_diagonals heads, alibi batch and heads, sinks none. */
typedef enum attune_repeats {
  ATTUNE_REPEATS_BATCH = 1,
  ATTUNE_REPEATS_HEADS = 2,
  ATTUNE_REPEATS_ROWS = 4,
  ATTUNE_REPEATS_KEYS = 8
} attune_repeats;

/* Start from attune_gradients_contiguous. Gradients that attune_problem.backward.gradients does not
 * name are neither read nor written. */
typedef struct attune_gradient_operands {
  /* sizeof(attune_gradient_operands), set by attune_gradients_contiguous. */
  size_t size;

  /* ---- Gradients ---- */
  /* The gradient of o, [batch, seqlen_q, num_heads_q, head_dim_v]. It is read. */
  attune_tensor dout;
  /* The gradient of q, [batch, seqlen_q, num_heads_q, head_dim_qk]. It is written. */
  attune_tensor dq;
  /* The gradient of k, [batch, seqlen_kv, num_heads_kv, head_dim_qk]. It is written. */
  attune_tensor dk;
  /* The gradient of v, [batch, seqlen_kv, num_heads_kv, head_dim_v]. It is written. */
  attune_tensor dv;

  /* ---- Gradient of lse ---- */
  /* The gradient of lse, fp32 [batch, num_heads_q, seqlen_q]. It is read. NULL = 0 everywhere. */
  const float* dlse;
  /* The number of elements from one batch entry to the next. Both strides 0 = contiguous. */
  int64_t dlse_batch_stride;
  /* The number of elements from one head to the next. */
  int64_t dlse_head_stride;

  /* ---- Gradient of a score feature ---- */
  /* The gradient that score_gradient names, in the shape given there. It is written. */
  attune_tensor dscores;
} attune_gradient_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_GRADIENT_TYPES_H_ */
