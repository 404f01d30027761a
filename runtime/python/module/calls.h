/* SPDX-License-Identifier: Apache-2.0
 * The callables that Python code sees: they bind arguments, look for the entry of the call, and run it;
 * whatever is not found there is a call of a function in Python, which checks everything and says how
 * the next such call may be run. Used by module.c. */
#ifndef ATTUNE_PYTHON_CALLS_H_
#define ATTUNE_PYTHON_CALLS_H_

#include "python.h"

PyObject* make_signature_type(void);
PyObject* make_plan_type(void);

/* function(name, doc, parameters, defaults, required, positional, context, checked, table[, watch]) gives
 * a callable. parameters: names. defaults: of those behind the `required` first. positional: how many may
 * be given without a name. context: which one is a Context with a table of its own, or -1. checked(*arguments)
 * gives (result, recipe), where recipe() gives what entry.h describes, or None. watch: (object, name,
 * function): while the object's attribute or what function() gives is true, all calls are checked()'s. */
PyObject* make_function(PyObject* module, PyObject* arguments);

/* plan_method(name, doc, parameters, defaults, required, positional, checked): the same as a method of
 * PlanBase, whose instances own the tables. There is one such method. */
PyObject* make_plan_method(PyObject* module, PyObject* arguments);

/* {"hits", "misses", "kept"}: calls that ran here, that took Python's way, and entries that were made. */
PyObject* counters(PyObject* module, PyObject* none);

#endif /* ATTUNE_PYTHON_CALLS_H_ */
