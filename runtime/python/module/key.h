/* SPDX-License-Identifier: Apache-2.0
 * Key: all that a call's plan depends on, as 64-bit words: dtypes, devices, extents and strides of
 * its tensors, and the values of its other arguments. Calls with equal words pass the same checks
 * and run the same plan. Made by calls.c, looked up in table.c. */
#ifndef ATTUNE_PYTHON_KEY_H_
#define ATTUNE_PYTHON_KEY_H_

#include "tensors.h"

enum { kMaxWords = 256, kMaxOperands = 20, kMaxIdentities = 8 };

typedef struct Key {
  int num_words;
  int num_operands;
  int num_tensors; /* operands that are tensors of PyTorch */
  int num_identities;
  uint64_t words[kMaxWords];
  Operand operands[kMaxOperands];       /* in the order of the arguments */
  PyObject* identities[kMaxIdentities]; /* borrowed; an entry keeps them alive */
} Key;

/* Makes an empty key for calls of `function`. Its address is part of the key, because the table of
 * a Context has calls of several functions. */
void key_begin(Key* key, const void* function);

/* Appends argument number `slot`. Returns 0 if that is not possible: the type is not known, a
 * tensor has no plain memory, or the argument is larger than a key. */
int key_add(Key* key, int slot, PyObject* value);

/* True if the call must take the Python path because of one of its tensors: see is_special(). */
int key_is_special(const Key* key);

uint64_t key_hash(const Key* key);

#endif /* ATTUNE_PYTHON_KEY_H_ */
