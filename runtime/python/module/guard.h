/* SPDX-License-Identifier: Apache-2.0
 * Guards: check all that changes how PyTorch handles a call, except the tensors' layouts: modes,
 * autocast, transforms, gradients, negative views. A guard is made from tensors in a scope. Later
 * one call of PyTorch compares dispatch keys and gradients with it. Used by entry.c and calls.c. */
#ifndef ATTUNE_PYTHON_GUARD_H_
#define ATTUNE_PYTHON_GUARD_H_

#include "key.h"

enum { kGuardsKept = 8 };

/* `scope`: the settings of autocast, NULL if it was off. They are needed because dispatch keys show
 * that autocast is on, but not its dtype. `without_history`: some tensors require gradients, and
 * the guard passes them only while PyTorch records no gradients. */
typedef struct Guard {
  PyObject* check;
  PyObject* scope;
  int num_tensors; /* different objects */
  int without_history;
} Guard;

/* The guards of one entry: scopes and kinds of tensors that need nothing special. */
typedef struct Guards {
  int count;
  int next; /* the one to replace */
  Guard kept[kGuardsKept];
} Guards;

/* True if the call needs a guard before it is kept: it has tensors, and this PyTorch makes
 * guards. */
int wants_guard(const Key* key);

/* Returns a guard for this call, which the caller releases. Its check is NULL if none can be
 * made. */
Guard guard_of(const Key* key);
void guard_release(Guard* guard);

void guards_add(Guards* guards, Guard guard);
int guards_pass(Guards* guards, const Key* key);
void guards_clear(Guards* guards);

#endif /* ATTUNE_PYTHON_GUARD_H_ */
