/* SPDX-License-Identifier: Apache-2.0
 * Functions that are found at run time: see library.h. */
#include "library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef int (*StreamIsCapturing)(void* stream, int* status); /* cuStreamIsCapturing */

Library library;
static StreamIsCapturing stream_is_capturing;
static PyObject* error_type;

#define ATTUNE_LIBRARY_NAME(name) {#name, offsetof(Library, name)},
static const struct LibraryName {
  const char* name;
  size_t offset;
} names[] = {ATTUNE_LIBRARY_FUNCTIONS(ATTUNE_LIBRARY_NAME)};
#undef ATTUNE_LIBRARY_NAME

static int find_functions(void* handle, const char* path, Library* found) {
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    void* function = dlsym(handle, names[i].name);
    if (function == NULL) {
      PyErr_Format(PyExc_ImportError, "%s has no %s; must be of this module's version of attune",
                   path, names[i].name);
      return -1;
    }
    memcpy((char*)found + names[i].offset, &function, sizeof function);
  }
  int version = (int)found->attune_abi_version();
  if (version == ATTUNE_ABI_VERSION) return 0;
  PyErr_Format(PyExc_ImportError, "%s has ABI version %d; must be %d, as this module's", path,
               version, ATTUNE_ABI_VERSION);
  return -1;
}

int connect_library(PyObject* arguments) {
  PyObject *path, *error;
  if (!PyArg_ParseTuple(arguments, "O&O:connect", PyUnicode_FSConverter, &path, &error)) return -1;
  Library found;
  void* handle = dlopen(PyBytes_AsString(path), RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) PyErr_SetString(PyExc_OSError, dlerror());
  int is_usable = handle != NULL && find_functions(handle, PyBytes_AsString(path), &found) == 0;
  Py_DECREF(path);
  if (!is_usable) return -1;
  if (library.attune_run != NULL && library.attune_run != found.attune_run) {
    PyErr_SetString(PyExc_ImportError, "another libattune.so is in use by this process");
    return -1;
  }
  library = found;
  PyObject* old = error_type;
  Py_INCREF(error);
  error_type = error;
  Py_XDECREF(old);
  return 0;
}

int check_status(attune_status status) {
  if (status == ATTUNE_OK) return 0;
  const char* text = library.attune_last_error();
  PyObject* message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  PyObject* error = message ? PyObject_CallFunction(error_type, "iO", (int)status, message) : NULL;
  if (error != NULL) PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(message);
  return -1;
}

int run_plan(int ordinal, const void* plan, const void* operands, void* workspace,
             size_t workspace_bytes, void* stream) {
  attune_status status;
  if (ordinal >= 0) {
    status = library.attune_run(plan, operands, workspace, workspace_bytes, stream);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    status = library.attune_run(plan, operands, workspace, workspace_bytes, stream);
    Py_END_ALLOW_THREADS;
  }
  return check_status(status);
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
