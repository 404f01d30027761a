/* SPDX-License-Identifier: Apache-2.0
 * What PyTorch makes of a call's tensors beside their layouts: modes, autocast, transforms, gradients,
 * negative views. One call of PyTorch answers for all of them: a guard, which was made of such tensors in
 * such a scope, says whether dispatch keys and gradients are as they were then. Used by entry.c and calls.c. */
#ifndef ATTUNE_PYTHON_GUARD_H_
#define ATTUNE_PYTHON_GUARD_H_

#include "key.h"

enum { kGuardsKept = 8 };

/* `scope`: what autocast was set to, NULL where it was off: dispatch keys say that it is on, and not to
 * which dtype. `without_history`: it has tensors that require gradients, and passes them where PyTorch
 * records none. */
typedef struct Guard {
  PyObject* check;
  PyObject* scope;
  int num_tensors; /* those that are different objects */
  int without_history;
} Guard;

/* Of one entry: scopes and kinds of tensors of which it was found that they are nothing special. */
typedef struct Guards {
  int count;
  int next; /* to be replaced */
  Guard kept[kGuardsKept];
} Guards;

/* Whether the call needs a guard before it is kept: it has tensors, and this PyTorch makes guards. */
int wants_guard(const Key* key);

/* A guard of this call, which the caller gives back; its check is NULL where there is none. */
Guard guard_of(const Key* key);
void guard_release(Guard* guard);

void guards_add(Guards* guards, Guard guard);
int guards_pass(Guards* guards, const Key* key);
void guards_clear(Guards* guards);

#endif /* ATTUNE_PYTHON_GUARD_H_ */
