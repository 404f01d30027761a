/* SPDX-License-Identifier: Apache-2.0
 * _attune: the way from Python to libattune.so. It has the functions of attune.h that the package
 * calls (interface.c), its structs (operands.c, problem.c), and the fast path of
 * known calls: a call's dtypes, extents, strides and other arguments are words (key.c); a table
 * (table.c) has an entry for calls with the same words (entry.c), and attune_run is called with the
 * addresses of this call. Python does everything else: checks, error messages, plans.
 * core/library.py loads the module, and ops/quick.py gives it recipes. */
#include "arena.h"
#include "calls.h"
#include "entry.h"
#include "interface.h"
#include "library.h"
#include "structs.h"

enum { kRevision = 8 }; /* of the interface to Python; core/library.py checks it */

static PyObject* take_probe(PyObject* module, PyObject* probe) {
  if (set_probe(probe) != 0) return NULL;
  Py_RETURN_NONE;
}

/* More functions, those of the fast path and of structs. */
static PyMethodDef quick_methods[] = {
    {"add_arena", add_arena, METH_VARARGS, "See arena.h."},
    {"capture_of", capture_of, METH_VARARGS, "See graphs.h."},
    {"check_all", check_all, METH_O, "See calls.h."},
    {"counters", counters, METH_NOARGS, "Calls that ran here, and that took the Python path."},
    {"function", make_function, METH_VARARGS, "See calls.h."},
    {"graph_is_gone", graph_is_gone, METH_VARARGS, "See graphs.h."},
    {"plan_method", make_plan_method, METH_VARARGS, "See calls.h."},
    {"problem", make_problem, METH_VARARGS, "See problem.h."},
    {"relax_captures", relax_captures, METH_NOARGS, "See graphs.h."},
    {"score_operands", make_score_operands, METH_VARARGS, "See operands.h."},
    {"set_probe", take_probe, METH_O, "See tensors.h."},
    {"watch_graph", watch_graph, METH_VARARGS, "See graphs.h."},
    {"watches_graphs", watches_graphs, METH_NOARGS, "See graphs.h."},
    {NULL, NULL, 0, NULL}};

static PyObject* connect(PyObject* module, PyObject* arguments) {
  if (connect_library(arguments) != 0 || PyModule_AddFunctions(module, interface_methods) != 0 ||
      PyModule_AddFunctions(module, quick_methods) != 0)
    return NULL;
  Py_RETURN_NONE;
}

/* A process has one type of each name, also if the module starts again: static data refer to it. */
static int add_type(PyObject* module, const char* name, PyObject* (*make)(void), PyObject** type) {
  if (*type == NULL) *type = make();
  return *type == NULL ? -1 : PyModule_AddObjectRef(module, name, *type);
}

static int start(PyObject* module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) { /* owner of static data */
    PyErr_SetString(
        PyExc_ImportError,
        "attune is imported in a sub-interpreter; it serves only the main interpreter of "
        "a process");
    return -1;
  }
  static PyObject *arena, *table, *signature, *plan, *launcher;
  if (add_type(module, "Arena", make_arena_type, &arena) != 0 ||
      add_type(module, "Table", make_table_type, &table) != 0 ||
      add_type(module, "Signature", make_signature_type, &signature) != 0 ||
      add_type(module, "PlanBase", make_plan_type, &plan) != 0 ||
      add_type(module, "Launcher", make_launcher_type, &launcher) != 0 ||
      add_operand_structs(module) != 0 || add_struct(module, &problem_struct) != 0)
    return -1;
  return PyModule_AddIntConstant(module, "REVISION", kRevision);
}

PyMODINIT_FUNC PyInit__attune(void) {
  static PyMethodDef methods[] = {{"connect", connect, METH_VARARGS, "See library.h."},
                                  {NULL, NULL, 0, NULL}};
  static PyModuleDef_Slot slots[] = {{Py_mod_exec, start},
#ifdef Py_GIL_DISABLED
                                     /* Tables, arenas and entries change without locks. */
                                     {Py_mod_gil, Py_MOD_GIL_USED},
#endif
                                     {0, NULL}};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "_attune",
                                   "The way to libattune.so.",
                                   0,
                                   methods,
                                   slots,
                                   NULL,
                                   NULL,
                                   NULL};
  return PyModuleDef_Init(&definition);
}
