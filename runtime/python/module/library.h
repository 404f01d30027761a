/* SPDX-License-Identifier: Apache-2.0
 * The functions of libattune.so and of the driver that a run calls. Used by entry.c and launcher.c. */
#ifndef ATTUNE_PYTHON_LIBRARY_H_
#define ATTUNE_PYTHON_LIBRARY_H_

#include "python.h"

/* connect(handle, check): the library that ctypes opened, and what raises attune.Error of a status. */
PyObject* connect_library(PyObject* module, PyObject* arguments);

/* attune_run. Holds the GIL for a GPU (it only enqueues), gives it up for a CPU. 0, or -1 with the
 * exception of `check`. */
int run_plan(int ordinal, const void* plan, const void* operands, void* workspace,
             size_t workspace_bytes, void* stream);

/* A function of the CUDA driver that the process has loaded; NULL without one. */
void* driver_function(const char* name);

/* Whether a CUDA graph may be capturing what `stream` is given; also where that cannot be known. */
int may_be_capturing(void* stream);

#endif /* ATTUNE_PYTHON_LIBRARY_H_ */
