/* SPDX-License-Identifier: Apache-2.0
 * Reads tensors of PyTorch (by DLPack's exchange functions) and arrays of NumPy (by
 * __array_struct__), and classifies the types of arguments. Used by key.c and entry.c. */
#ifndef ATTUNE_PYTHON_TENSORS_H_
#define ATTUNE_PYTHON_TENSORS_H_

#include "python.h"

#include "dlpack.h"

typedef enum TypeKind {
  kUnknown = 0,  /* calls with it take the Python path */
  kIdentity = 1, /* objects that never change, compared by address */
  kArray = 2,
  kContext = 3,
  kTensor = 4
} TypeKind;

/* One type of arguments, which was examined once. Tensors of a type with `exchange` may require
 * gradients. */
typedef struct KnownType {
  PyTypeObject* type;
  TypeKind kind;
  const DlpackExchange* exchange;
} KnownType;

/* A tensor that a call reads or writes. `object` is borrowed from the arguments. */
typedef struct Operand {
  PyObject* object;
  void* data; /* NULL if it has no elements */
  const KnownType* type;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint32_t element; /* DLPack's code and bits; for arrays their kind and bytes */
  int64_t size;     /* elements */
  int writable;
} Operand;

enum { kMaxRank = 8 };

/* Extents and strides of an operand. Strides count elements, those of arrays bytes. */
typedef struct Layout {
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
} Layout;

/* Sets `probe`, which is called with each type that was not seen before. It returns None for an
 * unknown type, a kind, or for tensors a tuple:
 *   a capsule with the exchange functions
 *   the function that makes a guard of tensors, or None (see guard.h)
 *   functions that return: PyTorch records gradients, the number of dispatch modes, torch.jit.trace
 *   runs, autocast is on, the settings of autocast
 *   the module of forward derivatives, or None */
int set_probe(PyObject* probe);

/* Returns the function that makes guards, borrowed; NULL if PyTorch has none, or if no tensor was
 * seen yet. */
PyObject* guard_maker(void);

/* Returns the type of an object. Never fails: a type that cannot be examined is unknown. */
const KnownType* known_type(PyObject* object);

/* Reads an operand and returns 1, or returns 0 if it has no plain memory. */
int read_operand(PyObject* object, const KnownType* type, Operand* operand, Layout* layout);

/* Says if PyTorch records or observes calls now. */
typedef enum Recording { kNotAsked, kNotRecording, kRecording, kWatched } Recording;

/* True if a tensor's call must take the Python path: PyTorch observes calls, a result needs a
 * gradient history, or the tensor is a negative view. `recording`: kNotAsked before the first
 * tensor of a call; keeps PyTorch's answer for the others. */
int is_special(const Operand* operand, Recording* recording);

/* The next three functions return true also if PyTorch cannot answer. */
int requires_gradient(PyObject* tensor);
int may_record(void);  /* PyTorch records the history of results now */
int is_observed(void); /* by dispatch modes or a profiler, which guards do not always see */

/* Returns the settings of autocast, a new reference; NULL if it is off. */
PyObject* autocast_scope(void);

#endif /* ATTUNE_PYTHON_TENSORS_H_ */
