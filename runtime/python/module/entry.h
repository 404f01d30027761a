/* SPDX-License-Identifier: Apache-2.0
 * What is settled for all calls with one key: the plan, a copy of attune_operands with all but the
 * addresses, and what is allocated. _quick.py makes it; it alone knows the layout of the structs.
 *
 * A recipe is a tuple:
 *   keep        what must live as long: the plan, names of captures
 *   handle      of the plan;  ordinal: N of cuda:N, -1 on a CPU;  workspace_bytes, zeroed_bytes
 *   stream      a handle, or -1: the current one of the tensors' library
 *   blob        bytes: attune_operands, and behind it all that it points to
 *   pointers    ((at, to), ...): the address of blob[to] belongs at blob[at]
 *   operands    ((index, (at, ...), span, flags), ...): the address of that operand of the key belongs there;
 *               span: bytes from its first to behind its last
 *   fresh       ((makers, (at, ...), rank), ...): makers is ((make, arguments), ...), and each call takes
 *               what the first make(*arguments) gives that stands on the device of operand 0
 *   result      numbers: i >= 0 is operand i of the key, -1 - i is fresh[i]. None of them: None;
 *               one: it; more: a tuple */
#ifndef ATTUNE_PYTHON_ENTRY_H_
#define ATTUNE_PYTHON_ENTRY_H_

#include "guard.h"

enum {
  kAligned = 1, /* flags of operands: to 16 bytes */
  kWritten = 2, /* by the run: must be writable and share no memory with what is guarded */
  kGuarded = 4,
  kInPlace = 8,      /* q and o alike in memory: o may stand in the very place of q */
  kWithPrior = 16,   /* begins where the operand before it in the recipe does, */
  kNotWithPrior = 32 /* or does not */
};

typedef struct Entry Entry;

/* NULL with an exception set where the recipe is none. The caller owns one reference. */
Entry* entry_make(const Key* key, Guard guard, PyObject* recipe);
void entry_hold(Entry* entry);
void entry_release(Entry* entry);
int entry_matches(const Entry* entry, uint64_t hash, const Key* key);
uint64_t entry_hash(const Entry* entry);
uint64_t* entry_used(Entry* entry); /* when it was used last, in lookups */
Guards* entry_guards(Entry* entry);

/* Whether PyTorch makes nothing more of this call than of those that the entry is known to serve. */
int entry_trusts(Entry* entry, const Key* key);

/* 1: it ran, *result is what the call returns. 0: Python's way must be taken: an address or a
 * workspace is not as expected, or a graph is being captured. -1: an exception is set. The caller
 * holds the entry, which other calls may drop from its table meanwhile. */
int entry_run(Entry* entry, const Key* key, PyObject** result);

#endif /* ATTUNE_PYTHON_ENTRY_H_ */
