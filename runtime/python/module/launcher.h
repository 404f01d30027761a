/* SPDX-License-Identifier: Apache-2.0
 * The result of Plan.launcher(): a function without arguments that repeats one run. Used by
 * module.c. */
#ifndef ATTUNE_PYTHON_LAUNCHER_H_
#define ATTUNE_PYTHON_LAUNCHER_H_

#include "python.h"

PyObject* make_launcher_type(void);

/* launcher(ordinal, plan, operands, workspace, workspace_bytes, stream, keep): plan, operands,
 * workspace and stream are addresses; keep is an object that keeps them valid. */
PyObject* make_launcher(PyObject* module, PyObject* arguments);

#endif /* ATTUNE_PYTHON_LAUNCHER_H_ */
