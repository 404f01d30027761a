/* SPDX-License-Identifier: Apache-2.0
 * Functions that are found at run time: see library.h. */
#include "library.h"

#include <dlfcn.h>

typedef int (*AttuneRun)(const void* plan, const void* operands, void* workspace,
                         size_t workspace_bytes, void* stream);
typedef int (*StreamIsCapturing)(void* stream, int* status); /* cuStreamIsCapturing */

static AttuneRun attune_run;
static StreamIsCapturing stream_is_capturing;
static PyObject* check_status;

PyObject* connect_library(PyObject* module, PyObject* arguments) {
  (void)module;
  unsigned long long handle;
  PyObject* check;
  if (!PyArg_ParseTuple(arguments, "KO:connect", &handle, &check)) return NULL;
  AttuneRun found = NULL;
  *(void**)&found = dlsym((void*)(uintptr_t)handle, "attune_run");
  if (found == NULL || (attune_run != NULL && attune_run != found)) {
    PyErr_SetString(PyExc_ImportError, found ? "another libattune.so is in use by this process"
                                             : "libattune.so has no attune_run");
    return NULL;
  }
  attune_run = found;
  PyObject* old = check_status;
  Py_INCREF(check);
  check_status = check;
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

static int raise_status(int status) {
  PyObject* number = PyLong_FromLong(status);
  PyObject* none = number ? PyObject_CallFunctionObjArgs(check_status, number, NULL) : NULL;
  Py_XDECREF(number);
  if (none != NULL) PyErr_SetString(PyExc_SystemError, "a failed run was not reported");
  Py_XDECREF(none);
  return -1;
}

int run_plan(int ordinal, const void* plan, const void* operands, void* workspace,
             size_t workspace_bytes, void* stream) {
  if (attune_run == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "_attune is not connected to libattune.so");
    return -1;
  }
  int status;
  if (ordinal >= 0) {
    status = attune_run(plan, operands, workspace, workspace_bytes, stream);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    status = attune_run(plan, operands, workspace, workspace_bytes, stream);
    Py_END_ALLOW_THREADS;
  }
  return status == 0 ? 0 : raise_status(status);
}

void* driver_function(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver != NULL ? dlsym(driver, name) : NULL;
}

int may_be_capturing(void* stream) {
  if (stream_is_capturing == NULL) {
    *(void**)&stream_is_capturing = driver_function("cuStreamIsCapturing");
    if (stream_is_capturing == NULL) return 1;
  }
  int status = 1;
  return stream_is_capturing(stream, &status) != 0 || status != 0;
}
