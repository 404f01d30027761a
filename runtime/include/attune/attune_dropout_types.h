/* SPDX-License-Identifier: Apache-2.0
 * Dropout of P, the weights of attention. attune_problem.dropout is the fraction that is dropped.
 * attune_types.h includes this file.
 *
 * The mask depends only on seed, offset, batch entry, head, row and key. It is the same in
 * ATTUNE_PREFILL and ATTUNE_ATTENTION_BACKWARD, on every device, in every kernel. Give each call
 * its own offset or its own seed.
 */
#ifndef ATTUNE_ATTUNE_DROPOUT_TYPES_H_
#define ATTUNE_ATTUNE_DROPOUT_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* attune_operands.dropout. */
typedef struct attune_dropout_operands {
  /* sizeof(attune_dropout_operands). Set it before the call. */
  size_t size;
  /* The seed of the mask. */
  uint64_t seed;
  /* The offset of the mask, which distinguishes calls with the same seed. */
  uint64_t offset;
  /* A number on the device, aligned to 8 bytes, that kernels add to seed. Each launch of a captured
   * graph reads it. NULL = nothing is added. */
  const uint64_t* seed_address;
  /* A number on the device, aligned to 8 bytes, that kernels add to offset. Each launch of a
   * captured graph reads it. NULL = nothing is added. */
  const uint64_t* offset_address;
  /* Two numbers on the device, aligned to 8 bytes, to which ATTUNE_PREFILL writes the seed and the
   * offset that it used. NULL = they are not written. ATTUNE_ATTENTION_BACKWARD can read them:
   * seed_address = state, offset_address = state + 1, seed and offset 0. */
  uint64_t* state;
  /* For a call that computes a part of a larger problem: the number of its first head in that
   * problem, counted over all batch entries, and its first row, a multiple of 16. The mask is then
   * that of the larger problem. Keys begin with key 0, and batch entries follow each other by
   * num_heads_q of this call. */
  int64_t head0;
  int64_t row0;
} attune_dropout_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_DROPOUT_TYPES_H_ */
