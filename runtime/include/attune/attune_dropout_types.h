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

typedef struct attune_dropout_operands {
  /* sizeof(attune_dropout_operands). */
  size_t size;
  uint64_t seed;
  uint64_t offset;
  /* Numbers on the device that kernels add to seed and offset, aligned to 8 bytes. A captured graph
   * reads the values of each launch. NULL = nothing is added. */
  const uint64_t* seed_address;
  const uint64_t* offset_address;
  /* ATTUNE_PREFILL writes the seed and the offset that it used here: two numbers on the device,
   * aligned to 8 bytes. NULL = they are not written. ATTUNE_ATTENTION_BACKWARD can read them:
   * seed_address = state, offset_address = state + 1, seed and offset 0. */
  uint64_t* state;
} attune_dropout_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_DROPOUT_TYPES_H_ */
