/* SPDX-License-Identifier: Apache-2.0
 * attune_problem for Python. Used by interface.c. */
#ifndef ATTUNE_PYTHON_PROBLEM_H_
#define ATTUNE_PYTHON_PROBLEM_H_

#include "structs.h"

extern StructType problem_struct; /* Problem */

/* problem(text, fields) parses a problem's text (bytes), and sets the fields that a text cannot
 * hold: a tuple of pairs of a name and a value. Returns a Problem. */
PyObject* make_problem(PyObject* module, PyObject* arguments);

#endif /* ATTUNE_PYTHON_PROBLEM_H_ */
