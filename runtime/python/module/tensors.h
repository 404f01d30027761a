/* SPDX-License-Identifier: Apache-2.0
 * Reads tensors of PyTorch (DLPack's exchange functions) and arrays of NumPy (__array_struct__), and
 * knows which types of arguments there are. Used by key.c and entry.c. */
#ifndef ATTUNE_PYTHON_TENSORS_H_
#define ATTUNE_PYTHON_TENSORS_H_

#include "python.h"

#include "dlpack.h"

typedef enum TypeKind {
  kUnknown = 0,  /* calls with it take Python's way */
  kIdentity = 1, /* objects that never change, told apart by their address */
  kArray = 2,
  kContext = 3,
  kTensor = 4
} TypeKind;

/* One type of arguments, looked at once. Tensors of `exchange` may require gradients. */
typedef struct KnownType {
  PyTypeObject* type;
  TypeKind kind;
  const DlpackExchange* exchange;
} KnownType;

/* What a call reads or writes. `object` is borrowed from the arguments. */
typedef struct Operand {
  PyObject* object;
  void* data; /* NULL where it has no elements */
  const KnownType* type;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint32_t element; /* DLPack's code and bits; of arrays their kind and bytes */
  int64_t size;     /* elements */
  int writable;
} Operand;

enum { kMaxRank = 8 };

/* Extents and strides of an operand: strides in elements, those of arrays in bytes. */
typedef struct Layout {
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
} Layout;

/* `probe`: called with a type that was not seen before; None for one that is unknown, a kind, or a
 * tuple: a capsule with the exchange functions, what makes a guard of tensors or None (see
 * guard.h), and functions that say whether PyTorch records gradients, how many dispatch modes there
 * are, whether autocast is on, and what it is set to; and the module of forward derivatives, or None. */
int set_probe(PyObject* probe);

/* What makes guards, borrowed; NULL: there are none, or no tensor was seen yet. */
PyObject* guard_maker(void);

/* Never fails: what cannot be looked at is unknown. */
const KnownType* known_type(PyObject* object);

/* 1: read. 0: it has no plain memory. */
int read_operand(PyObject* object, const KnownType* type, Operand* operand, Layout* layout);

/* What PyTorch makes of a call now. */
typedef enum Recording { kNotAsked, kNotRecording, kRecording, kWatched } Recording;

/* Whether Python must look at a tensor: PyTorch looks at calls itself, a result of it should have a
 * history, or its memory holds the negative of what it shows. `recording`: kNotAsked at first. */
int is_special(const Operand* operand, Recording* recording);

/* Both also where that cannot be known. */
int requires_gradient(PyObject* tensor);
int may_record(void);       /* whether PyTorch gives results a history now */
int in_dispatch_mode(void); /* which guards do not always see */

/* What autocast is set to, a new reference; NULL: it is off. */
PyObject* autocast_scope(void);

#endif /* ATTUNE_PYTHON_TENSORS_H_ */
