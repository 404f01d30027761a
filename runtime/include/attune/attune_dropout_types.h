/* SPDX-License-Identifier: Apache-2.0
 * Dropout of P, the weights of attention: attune_problem.dropout says how much. attune_types.h includes this file.
 *
 * What is kept depends on seed, offset, batch entry, head, row and key alone: it is the same in prefill and attention_backward, on
 * every device, whatever kernel runs. Give each call an offset of its own, or another seed.
 */
#ifndef ATTUNE_ATTUNE_DROPOUT_TYPES_H_
#define ATTUNE_ATTUNE_DROPOUT_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_dropout_operands {
  size_t size;
  uint64_t seed;
  uint64_t offset;
  /* On the device, read by the kernels: added to those above, so that a captured graph sees new ones; or NULL. 8-byte aligned. */
  const uint64_t* seed_address;
  const uint64_t* offset_address;
  /* Op prefill writes seed and offset as it used them, two numbers on the device, or NULL. Let attention_backward read them there:
   * seed_address = state, offset_address = state + 1, seed and offset 0. */
  uint64_t* state;
} attune_dropout_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_DROPOUT_TYPES_H_ */
