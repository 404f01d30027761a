/* SPDX-License-Identifier: Apache-2.0
 * One prepared run: see launcher.h. */
#include "launcher.h"

#include "library.h"

typedef struct Launcher {
  PyObject_HEAD int ordinal;
  const void* plan;
  const void* operands;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
  PyObject* keep;
} Launcher;

static PyObject* launcher_type;

static PyObject* launch(PyObject* self, PyObject* none) {
  (void)none;
  const Launcher* run = (const Launcher*)self;
  if (run_plan(run->ordinal, run->plan, run->operands, run->workspace, run->workspace_bytes,
               run->stream) != 0)
    return NULL;
  Py_RETURN_NONE;
}

static void launcher_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(((Launcher*)self)->keep);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF((PyObject*)type);
}

PyObject* make_launcher_type(void) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, launcher_dealloc}, {0, NULL}};
  static PyType_Spec spec = {"attune._attune.Launcher", sizeof(Launcher), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  launcher_type = PyType_FromSpec(&spec);
  return launcher_type;
}

PyObject* make_launcher(PyObject* module, PyObject* arguments) {
  (void)module;
  static PyMethodDef definition = {"launch", launch, METH_NOARGS, "Repeats its run."};
  int ordinal;
  unsigned long long plan, operands, workspace, stream;
  Py_ssize_t workspace_bytes;
  PyObject* keep;
  if (!PyArg_ParseTuple(arguments, "iKKKnKO:launcher", &ordinal, &plan, &operands, &workspace,
                        &workspace_bytes, &stream, &keep))
    return NULL;
  allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject*)launcher_type, Py_tp_alloc);
  Launcher* run = (Launcher*)allocate((PyTypeObject*)launcher_type, 0);
  if (run == NULL) return NULL;
  run->ordinal = ordinal;
  run->plan = (const void*)(uintptr_t)plan;
  run->operands = (const void*)(uintptr_t)operands;
  run->workspace = (void*)(uintptr_t)workspace;
  run->workspace_bytes = (size_t)workspace_bytes;
  run->stream = (void*)(uintptr_t)stream;
  Py_INCREF(keep);
  run->keep = keep;
  PyObject* function = PyCFunction_NewEx(&definition, (PyObject*)run, NULL);
  Py_DECREF((PyObject*)run);
  return function;
}
