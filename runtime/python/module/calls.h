/* SPDX-License-Identifier: Apache-2.0
 * The callables that Python code sees. They bind arguments, look up the entry of the call, and run
 * it. A call without an entry takes the Python path: a function that checks everything, and returns
 * a recipe with which equal calls run later. Used by module.c. */
#ifndef ATTUNE_PYTHON_CALLS_H_
#define ATTUNE_PYTHON_CALLS_H_

#include "python.h"

PyObject* make_signature_type(void);
PyObject* make_plan_type(void);

/* function(name, doc, parameters, defaults, required, positional, context, checked, table[, watch])
 * returns a callable.
 *   parameters  names
 *   defaults    of the parameters after the first `required`
 *   positional  number of parameters that may be given without a name
 *   context     index of the parameter that is a Context, which has its own table; or -1
 *   checked     checked(*arguments) returns (result, recipe), where recipe() returns the tuple of
 *               entry.h, or None
 *   watch       (object, name, function): while the object's attribute or function() is true, all
 *               calls go to checked */
PyObject* make_function(PyObject* module, PyObject* arguments);

/* plan_method(name, doc, parameters, defaults, required, positional, checked) returns the callable
 * as a method of PlanBase, whose instances own the tables. Only one such method may be made. */
PyObject* make_plan_method(PyObject* module, PyObject* arguments);

/* check_all(on): from now on all calls of this thread go to their checked functions and are not
 * kept, as for attune.prepare(); with False this ends. Scopes may nest. */
PyObject* check_all(PyObject* module, PyObject* on);

/* Returns {"hits", "misses", "kept"}: calls that ran here, calls that took the Python path, and
 * entries that were made. */
PyObject* counters(PyObject* module, PyObject* none);

#endif /* ATTUNE_PYTHON_CALLS_H_ */
