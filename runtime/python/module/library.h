/* SPDX-License-Identifier: Apache-2.0
 * The functions of libattune.so and of the driver that a run calls. Used by entry.c and
 * launcher.c. */
#ifndef ATTUNE_PYTHON_LIBRARY_H_
#define ATTUNE_PYTHON_LIBRARY_H_

#include "python.h"

/* connect(handle, check): handle is the library that ctypes opened; check(status) raises
 * attune.Error. */
PyObject* connect_library(PyObject* module, PyObject* arguments);

/* Calls attune_run. Keeps the GIL for a GPU, where it only enqueues, and releases it for a CPU.
 * Returns 0, or -1 with the exception of `check`. */
int run_plan(int ordinal, const void* plan, const void* operands, void* workspace,
             size_t workspace_bytes, void* stream);

/* Returns a function of the CUDA driver that the process has loaded; NULL without a driver. */
void* driver_function(const char* name);

/* True if a CUDA graph captures `stream`, or if the driver cannot report it. */
int may_be_capturing(void* stream);

#endif /* ATTUNE_PYTHON_LIBRARY_H_ */
