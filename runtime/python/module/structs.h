/* SPDX-License-Identifier: Apache-2.0
 * A struct of attune.h as a Python object, by a table of its fields. The object owns the bytes, or
 * is a view of an inner struct. It keeps the objects alive that it points to. operands.c and
 * problem.c have the tables. */
#ifndef ATTUNE_PYTHON_STRUCTS_H_
#define ATTUNE_PYTHON_STRUCTS_H_

#include "python.h"

typedef enum FieldKind {
  kInt32,
  kInt64,
  kUint64,
  kFloat,
  kAddress, /* an int; None for NULL */
  kBuffer,  /* the address of a bytes object */
  kInner,   /* a struct in the struct */
  kPointer  /* the address of another struct */
} FieldKind;

typedef struct StructType StructType;

typedef struct Field {
  const char* name; /* NULL ends a table */
  FieldKind kind;
  size_t offset;
  const StructType* of; /* of kInner and kPointer */
} Field;

struct StructType {
  const char* name; /* in the module */
  size_t bytes;
  const Field* fields;
  int has_size;  /* the first member is `size` */
  int read_only; /* for Python */
  PyTypeObject* type;
};

/* The kind of a member that is no struct. */
#define ATTUNE_KIND(member)   \
  _Generic(member, int32_t    \
           : kInt32, int64_t  \
           : kInt64, uint64_t \
           : kUint64, float   \
           : kFloat, default  \
           : kAddress)

/* Adds the Python type to the module. Its attributes are `offsets`, those of its fields by name,
 * and `num_bytes`. Its objects have `address`, `kept` (any object), copy() and bytes(). */
int add_struct(PyObject* module, StructType* type);

/* Returns a new object of zeros, except for its size; NULL with an exception. */
PyObject* make_struct(const StructType* type);

/* Returns the bytes of an object, NULL with an exception if it is of another type. */
void* struct_data(PyObject* object, const StructType* type);

/* Sets a field by name, also of a read-only struct. Returns 0, or -1 with an exception. */
int struct_set(PyObject* object, const StructType* type, const char* name, PyObject* value);

/* The structs of one run's operands, in operands.c. */
extern StructType operands_struct, score_operands_struct, block_map_struct, rotary_struct;

/* Adds the types of all structs of operands.c to the module. */
int add_operand_structs(PyObject* module);

/* score_operands(captures, scalars, q_position0, kv_position0) returns a ScoreOperands. captures: a
 * list of (name, address, strides, extents); scalars: a list of (name, value). */
PyObject* make_score_operands(PyObject* module, PyObject* arguments);

extern StructType problem_struct; /* attune_problem, problem.c */

/* problem(text, fields) parses a problem's text (bytes), and sets the fields that a text cannot
 * hold: a tuple of pairs of a name and a value. Returns a Problem. */
PyObject* make_problem(PyObject* module, PyObject* arguments);

#endif /* ATTUNE_PYTHON_STRUCTS_H_ */
