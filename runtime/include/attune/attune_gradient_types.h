/* SPDX-License-Identifier: Apache-2.0
 * Op attention_backward: what attention's q, k and v change of a number that its o and lse decide.
 * attune_types.h includes this file.
 *
 * attune_operands has q, k, v, o and lse of the forward, all of them read; attune_gradient_operands
 * the rest. The problem is the forward's, with op = ATTUNE_ATTENTION_BACKWARD: same masks, scale and
 * score features, which capture the same tensors. Gradients are written whole, rows and keys that
 * take no part as 0. With deterministic = 1 those of one call have the same bits in every run of one
 * plan; without it some kernels sum dq in another order each time, which is faster.
 *
 * With accumulate, dq, dk and dv are fp32 whatever q, k and v are, and a call adds to what stands
 * there: as parts of a sequence want it whose other keys and rows are elsewhere. lse and o are then
 * those of the whole.
 *
 * The gradient of a bias, of slopes, of sinks or of what a score_mod loads is a problem of its own, with score_gradient: it
 * reads the same operands and writes dscores alone. Where the forward's tensor repeats a value along
 * an axis (stride 0), repeats says so, and dscores has one step there, the sum over all.
 */
#ifndef ATTUNE_ATTUNE_GRADIENT_TYPES_H_
#define ATTUNE_ATTUNE_GRADIENT_TYPES_H_

#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What attune_problem.gradients is a sum of. A plan computes only what is asked. */
typedef enum attune_gradient {
  ATTUNE_GRADIENT_Q = 1,
  ATTUNE_GRADIENT_K = 2,
  ATTUNE_GRADIENT_V = 4
} attune_gradient;

/* attune_problem.score_gradient. dscores is fp32, and written as [batch, rows, heads, columns]: */
typedef enum attune_score_gradient {
  ATTUNE_SCORE_GRADIENT_NONE = 0,
  ATTUNE_SCORE_GRADIENT_BIAS = 1,          /* [batch, seqlen_q, num_heads_q, seqlen_kv] */
  ATTUNE_SCORE_GRADIENT_RELATIVE_BIAS = 2, /* [1, 1, num_heads_q, seqlen_q + seqlen_kv - 1] */
  ATTUNE_SCORE_GRADIENT_ALIBI = 3,         /* of the slopes: [batch, 1, 1, num_heads_q] */
  ATTUNE_SCORE_GRADIENT_SINKS = 4,         /* [1, 1, 1, num_heads_q] */
  /* Of what score_mod reads of a tensor at one of its loads of floats, attune_problem.load: at each
   * row and key as a bias, or by distances as relative_bias. An element of the tensor has the sum
   * over all places whose indices are its own; attune_program_nodes says what they are. */
  ATTUNE_SCORE_GRADIENT_LOAD = 5,
  ATTUNE_SCORE_GRADIENT_LOAD_DIAGONALS = 6
} attune_score_gradient;

/* What attune_problem.repeats is a sum of: any for bias and load, heads for relative_bias and
 * load_diagonals, batch and heads for alibi, none for sinks. */
typedef enum attune_repeats {
  ATTUNE_REPEATS_BATCH = 1,
  ATTUNE_REPEATS_HEADS = 2,
  ATTUNE_REPEATS_ROWS = 4,
  ATTUNE_REPEATS_KEYS = 8
} attune_repeats;

typedef struct attune_gradient_operands {
  size_t size;
  attune_tensor dout; /* of o: [batch, seqlen_q, num_heads_q, head_dim_v] */
  attune_tensor dq;   /* written: [batch, seqlen_q,  num_heads_q,  head_dim_qk] */
  attune_tensor dk;   /* written: [batch, seqlen_kv, num_heads_kv, head_dim_qk] */
  attune_tensor dv;   /* written: [batch, seqlen_kv, num_heads_kv, head_dim_v]. Of those that are
                         not asked nothing is read */
  const float* dlse;  /* of lse: [batch, num_heads_q, seqlen_q]; NULL = 0 everywhere */
  int64_t dlse_batch_stride; /* both 0 = contiguous */
  int64_t dlse_head_stride;
  attune_tensor dscores; /* written, of problems with score_gradient */
} attune_gradient_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_GRADIENT_TYPES_H_ */
