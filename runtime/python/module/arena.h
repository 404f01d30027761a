/* SPDX-License-Identifier: Apache-2.0
 * Arena: the part of a workspace of a stream or a thread that a run reads: address, size, and how
 * many bytes are zero. The Workspace of ops/workspace.py is a subclass, which grows and zeroes
 * it. */
#ifndef ATTUNE_PYTHON_ARENA_H_
#define ATTUNE_PYTHON_ARENA_H_

#include "python.h"

typedef struct Arena {
  PyObject_HEAD unsigned long long address;
  unsigned long long size;
  unsigned long long zero_bytes; /* first bytes that are zero between runs */
  int busy;                      /* a thread is between ready() and its launch, in Python */
  void* mapped;                  /* memory of the host that the arena owns, or NULL */
  size_t mapped_bytes;
} Arena;

PyObject* make_arena_type(void);

/* add_arena(ordinal, stream, arena): sets the arena of a GPU's stream. With ordinal -1 it sets the
 * arena of the calling thread. */
PyObject* add_arena(PyObject* module, PyObject* arguments);

/* Returns the arena that a run may use now, from *address on; NULL if it is missing, busy, too
 * small or not zeroed. The reference is borrowed, and valid until Python code runs. */
Arena* ready_arena(int ordinal, void* stream, size_t workspace_bytes, size_t zeroed_bytes,
                   void** address);

#endif /* ATTUNE_PYTHON_ARENA_H_ */
