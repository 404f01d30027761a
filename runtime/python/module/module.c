/* SPDX-License-Identifier: Apache-2.0
 * _attune: the fast path of attune's Python module, over CPython's stable interface. A call's
 * dtypes, extents, strides and other arguments are words (key.c). A table (table.c) has an entry
 * for calls with the same words (entry.c), and attune_run is called with the addresses of this
 * call. Python does everything else: checks, error messages, plans. core/library.py loads the
 * module, and ops/quick.py gives it recipes. Without it everything works by ctypes. */
#include "arena.h"
#include "calls.h"
#include "graphs.h"
#include "launcher.h"
#include "library.h"
#include "table.h"

enum { kRevision = 6 }; /* of the interface to Python; core/library.py checks it */

static PyObject* take_probe(PyObject* module, PyObject* probe) {
  (void)module;
  if (set_probe(probe) != 0) return NULL;
  Py_RETURN_NONE;
}

static int add_type(PyObject* module, const char* name, PyObject* type) {
  if (type == NULL) return -1;
  return PyModule_AddObjectRef(module, name, type); /* make_* keeps the other reference */
}

/* Static data belongs to the main interpreter; others use ctypes. */
static int start(PyObject* module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "_attune serves only the main interpreter");
    return -1;
  }
  if (add_type(module, "Arena", make_arena_type()) != 0 ||
      add_type(module, "Table", make_table_type()) != 0 ||
      add_type(module, "Signature", make_signature_type()) != 0 ||
      add_type(module, "PlanBase", make_plan_type()) != 0 ||
      add_type(module, "Launcher", make_launcher_type()) != 0)
    return -1;
  return PyModule_AddIntConstant(module, "REVISION", kRevision);
}

PyMODINIT_FUNC PyInit__attune(void) {
  static PyMethodDef methods[] = {
      {"add_arena", add_arena, METH_VARARGS, "See arena.h."},
      {"check_all", check_all, METH_O, "See calls.h."},
      {"capture_of", capture_of, METH_VARARGS, "See graphs.h."},
      {"connect", connect_library, METH_VARARGS, "See library.h."},
      {"counters", counters, METH_NOARGS, "Calls that ran here, and that took the Python path."},
      {"function", make_function, METH_VARARGS, "See calls.h."},
      {"graph_is_gone", graph_is_gone, METH_VARARGS, "See graphs.h."},
      {"launcher", make_launcher, METH_VARARGS, "See launcher.h."},
      {"plan_method", make_plan_method, METH_VARARGS, "See calls.h."},
      {"relax_captures", relax_captures, METH_NOARGS, "See graphs.h."},
      {"set_probe", take_probe, METH_O, "See tensors.h."},
      {"watch_graph", watch_graph, METH_VARARGS, "See graphs.h."},
      {"watches_graphs", watches_graphs, METH_NOARGS, "See graphs.h."},
      {NULL, NULL, 0, NULL}};
  static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "_attune",
                                   "The fast path of attention(), Plan.run() and Plan.launcher().",
                                   0,
                                   methods,
                                   slots,
                                   NULL,
                                   NULL,
                                   NULL};
  return PyModuleDef_Init(&definition);
}
