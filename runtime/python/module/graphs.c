/* SPDX-License-Identifier: Apache-2.0
 * Captures and graphs: see interface.h. The driver's functions are found at run time, as in
 * library.c. */
#include "interface.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "library.h"

typedef void (*Destroy)(void* data);
typedef struct GraphFunctions {
  int (*capture_info)(void* stream, int* status, unsigned long long* id, void** graph,
                      const void*** dependencies, size_t* num_dependencies);
  int (*make_object)(void** object, void* data, Destroy destroy, unsigned count, unsigned flags);
  int (*retain_object)(void* graph, void* object, unsigned count, unsigned flags);
  int (*exchange_mode)(int* mode);
} GraphFunctions;

static const GraphFunctions* functions(void) {
  static GraphFunctions found;
  if (found.capture_info == NULL) {
    *(void**)&found.make_object = driver_function("cuUserObjectCreate");
    *(void**)&found.retain_object = driver_function("cuGraphRetainUserObject");
    *(void**)&found.exchange_mode = driver_function("cuThreadExchangeStreamCaptureMode");
    *(void**)&found.capture_info = driver_function("cuStreamGetCaptureInfo_v2");
  }
  return &found;
}

PyObject* watches_graphs(PyObject* module, PyObject* none) {
  const GraphFunctions* driver = functions();
  return PyBool_FromLong(driver->capture_info && driver->make_object && driver->retain_object &&
                         driver->exchange_mode);
}

PyObject* capture_of(PyObject* module, PyObject* arguments) {
  unsigned long long stream, id = 0;
  if (!PyArg_ParseTuple(arguments, "K:capture_of", &stream)) return NULL;
  const GraphFunctions* driver = functions();
  enum { kActive = 1 };
  int status = 0;
  void* graph = NULL;
  if (driver->capture_info == NULL ||
      driver->capture_info((void*)(uintptr_t)stream, &status, &id, &graph, NULL, NULL) != 0 ||
      status != kActive)
    Py_RETURN_NONE;
  return Py_BuildValue("KK", id, (unsigned long long)(uintptr_t)graph);
}

/* Called on a thread of the driver, without the GIL. */
static void mark_gone(void* word) { atomic_store((atomic_int*)word, 1); }

PyObject* watch_graph(PyObject* module, PyObject* arguments) {
  unsigned long long graph;
  if (!PyArg_ParseTuple(arguments, "K:watch_graph", &graph)) return NULL;
  enum { kNoDestructorSync = 1, kMove = 1 };
  const GraphFunctions* driver = functions();
  void* object = NULL;
  atomic_int* word = driver->make_object && driver->retain_object ? malloc(sizeof *word) : NULL;
  if (word == NULL) return PyLong_FromLong(0);
  atomic_init(word, 0);
  if (driver->make_object(&object, word, mark_gone, 1, kNoDestructorSync) != 0) {
    free(word);
    return PyLong_FromLong(0);
  }
  if (driver->retain_object((void*)(uintptr_t)graph, object, 1, kMove) != 0)
    return PyLong_FromLong(0); /* leaks the object and its word, which no graph owns */
  return PyLong_FromVoidPtr(word);
}

PyObject* graph_is_gone(PyObject* module, PyObject* arguments) {
  unsigned long long address;
  if (!PyArg_ParseTuple(arguments, "K:graph_is_gone", &address)) return NULL;
  atomic_int* word = (atomic_int*)(uintptr_t)address;
  if (atomic_load(word) == 0) Py_RETURN_FALSE;
  free(word);
  Py_RETURN_TRUE;
}

PyObject* relax_captures(PyObject* module, PyObject* none) {
  enum { kRelaxed = 2 };
  int mode = kRelaxed;
  if (functions()->exchange_mode != NULL) functions()->exchange_mode(&mode);
  Py_RETURN_NONE;
}
