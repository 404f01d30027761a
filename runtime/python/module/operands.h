/* SPDX-License-Identifier: Apache-2.0
 * The structs of one run's operands. Used by interface.c. */
#ifndef ATTUNE_PYTHON_OPERANDS_H_
#define ATTUNE_PYTHON_OPERANDS_H_

#include "structs.h"

extern StructType operands_struct, score_operands_struct, block_map_struct, rotary_struct;

/* Adds the types of all structs of this file to the module. */
int add_operand_structs(PyObject* module);

/* score_operands(captures, scalars, q_position0, kv_position0) returns a ScoreOperands. captures: a
 * list of (name, address, strides, extents); scalars: a list of (name, value). */
PyObject* make_score_operands(PyObject* module, PyObject* arguments);

#endif /* ATTUNE_PYTHON_OPERANDS_H_ */
