/* SPDX-License-Identifier: Apache-2.0
 * Entry: the state that all calls with one key share: the plan, a copy of attune_operands without
 * the addresses, and how to make the tensors that a call allocates. ops/quick.py makes the recipe
 * of an entry, with the offsets that the types of structs.h have.
 *
 * A recipe is a tuple:
 *   keep        objects that must live as long as the entry: the plan, names of captures
 *   handle      of the plan;  ordinal: N of cuda:N, -1 on a CPU;  workspace_bytes, zeroed_bytes
 *   stream      a handle, or -1: the current stream of the tensors' library
 *   blob        bytes: attune_operands, followed by everything that it points to
 *   pointers    ((at, to), ...): write the address of blob[to] at blob[at]
 *   operands    ((index, (at, ...), span, flags), ...): write the address of operand `index` of the
 *               key at these places; span: bytes from its first to the end of its last
 *   fresh       ((makers, (at, ...), rank), ...): makers is ((make, arguments), ...). A call takes
 *               the first result of make(*arguments) that is on the device of operand 0
 *   result      numbers: i >= 0 is operand i of the key, -1 - i is fresh[i]. No number: the result
 *               is None; one: it; more: a tuple */
#ifndef ATTUNE_PYTHON_ENTRY_H_
#define ATTUNE_PYTHON_ENTRY_H_

#include "guard.h"

enum {
  kAligned = 1, /* flags of operands: aligned to 16 bytes */
  kWritten = 2, /* by the run: must be writable and not share memory with guarded operands */
  kGuarded = 4,
  kInPlace = 8,      /* q and o with one layout: o may have the address of q */
  kWithPrior = 16,   /* must have the address of the operand before it in the recipe */
  kNotWithPrior = 32 /* must not have that address */
};

typedef struct Entry Entry;

/* Makes an entry. Returns NULL with an exception set if the recipe is malformed. The caller owns
 * one reference. */
Entry* entry_make(const Key* key, Guard guard, PyObject* recipe);
void entry_hold(Entry* entry);
void entry_release(Entry* entry);
int entry_matches(const Entry* entry, uint64_t hash, const Key* key);
uint64_t entry_hash(const Entry* entry);
uint64_t* entry_used(Entry* entry); /* time of the last use, counted in lookups */
Guards* entry_guards(Entry* entry);

/* True if PyTorch handles this call like a call that was checked for the entry: with the same
 * modes, autocast settings and gradients. */
int entry_trusts(Entry* entry, const Key* key);

/* Runs the call. 1: it ran, and *result is the result of the call. 0: the call must take the Python
 * path, because an address or a workspace is not as expected, or a graph is being captured. -1: an
 * exception is set. The caller holds the entry, which other calls may drop from its table
 * meanwhile. */
int entry_run(Entry* entry, const Key* key, PyObject** result);

/* A hash table of entries by key with a limited size. A full table drops the least recently used
 * entry. Each context and each plan owns one. See table.c. */
typedef struct Table Table;

/* The Python type Table(capacity), with clear() and len(). */
PyObject* make_table_type(void);
int is_table(PyObject* object);
PyObject* make_table(int capacity);

/* Returns the entry of a key, borrowed, or NULL. */
Entry* table_find(Table* table, const Key* key);

/* Returns how often the table was cleared. */
uint64_t table_clears(const Table* table);

/* Adds an entry, and takes over its reference. */
void table_keep(Table* table, Entry* entry, const Key* key, Guard guard);

#endif /* ATTUNE_PYTHON_ENTRY_H_ */
