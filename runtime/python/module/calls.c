/* SPDX-License-Identifier: Apache-2.0
 * Binding, looking up and running calls: see calls.h. */
#include "calls.h"

#include <stddef.h>
#include <string.h>

#include "entry.h"

enum { kMaxParameters = 48 };

typedef struct Signature {
  PyObject_HEAD PyObject* names; /* tuples; name_of and default_of have their items */
  PyObject* defaults;
  PyObject* name_of[kMaxParameters];
  PyObject* default_of[kMaxParameters]; /* NULL: required */
  int count;
  int required;
  int positional;
  int context;
  PyObject* checked;
  PyObject* table; /* NULL: the plan's */
  PyObject* watch; /* (object, name, function), see calls.h; or NULL */
  char* name;
  char* doc;
  PyMethodDef definition;
} Signature;

typedef struct Plan {
  PyObject_HEAD PyObject* table;
} Plan;

enum { kPlanCalls = 64 }; /* entries kept per plan */

static PyObject* signature_type;
static PyObject* plan_type;
static Signature* run_signature;
static PyObject* context_table_name;
static unsigned long long num_hits, num_misses, num_kept;
static _Thread_local int checks_all; /* scopes of check_all() that this thread is in */

/* Puts the arguments in the order of the parameters. Returns 0 if they do not fit; the Python path
 * then raises the error. */
static int bind(const Signature* call, PyObject* const* given, Py_ssize_t num_given,
                PyObject* names, PyObject** values) {
  if (num_given > call->positional) return 0;
  for (int i = 0; i < call->count; ++i) values[i] = i < num_given ? given[i] : NULL;
  Py_ssize_t num_named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t n = 0; n < num_named; ++n) {
    PyObject* name = PyTuple_GetItem(names, n);
    int i = 0;
    while (i < call->count && call->name_of[i] != name) ++i;
    if (i == call->count)
      for (i = 0; i < call->count && PyUnicode_Compare(call->name_of[i], name) != 0;) ++i;
    if (i == call->count || values[i] != NULL) return 0;
    values[i] = given[num_given + n];
  }
  for (int i = 0; i < call->count; ++i) {
    if (values[i] == NULL) values[i] = call->default_of[i];
    if (values[i] == NULL) return 0;
  }
  return 1;
}

/* Makes the key of the call, and returns a new reference to its table; NULL if the call has no
 * key. */
static PyObject* key_of(const Signature* call, PyObject* table, PyObject* const* values, Key* key) {
  key_begin(key, call);
  PyObject* own = NULL;
  int slot = 0;
  for (; slot < call->count; ++slot) {
    if (values[slot] == call->default_of[slot]) continue;
    if (slot == call->context && known_type(values[slot])->kind == kContext) {
      own = PyObject_GetAttr(values[slot], context_table_name);
      if (own == NULL || !is_table(own)) break;
    } else if (!key_add(key, slot, values[slot])) {
      break;
    }
  }
  if (PyErr_Occurred()) PyErr_Clear();
  if (slot < call->count || key->num_operands == 0) {
    Py_XDECREF(own);
    return NULL;
  }
  if (own != NULL) return own;
  Py_INCREF(table);
  return table;
}

static void keep(PyObject* table, const Key* key, Guard guard, PyObject* make_recipe) {
  PyObject* recipe = PyObject_CallFunctionObjArgs(make_recipe, NULL);
  Entry* entry = recipe != NULL && recipe != Py_None ? entry_make(key, guard, recipe) : NULL;
  if (PyErr_Occurred()) PyErr_WriteUnraisable(make_recipe); /* the call itself succeeded */
  Py_XDECREF(recipe);
  if (entry == NULL) return;
  table_keep((Table*)table, entry, key, guard);
  ++num_kept;
}

static PyObject* arguments_of(PyObject* self, PyObject* const* given, Py_ssize_t num_given) {
  Py_ssize_t first = self != NULL;
  PyObject* arguments = PyTuple_New(first + num_given);
  for (Py_ssize_t i = 0; arguments != NULL && i < first + num_given; ++i) {
    PyObject* value = i < first ? self : given[i - first];
    Py_INCREF(value);
    PyTuple_SetItem(arguments, i, value);
  }
  return arguments;
}

static PyObject* keywords_of(PyObject* const* values, PyObject* names) {
  PyObject* keywords = PyDict_New();
  for (Py_ssize_t i = 0; keywords != NULL && names != NULL && i < PyTuple_Size(names); ++i)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), values[i]) != 0) Py_CLEAR(keywords);
  return keywords;
}

/* Takes the Python path. `table`: the table that may keep the call, or NULL. */
static PyObject* call_checked(const Signature* call, PyObject* self, PyObject* const* given,
                              Py_ssize_t num_given, PyObject* names, PyObject* table,
                              const Key* key, Guard guard) {
  ++num_misses;
  uint64_t clears = table ? table_clears((const Table*)table) : 0;
  PyObject* arguments = arguments_of(self, given, num_given);
  PyObject* keywords = arguments ? keywords_of(given + num_given, names) : NULL;
  PyObject* answer = keywords ? PyObject_Call(call->checked, arguments, keywords) : NULL;
  Py_XDECREF(arguments);
  Py_XDECREF(keywords);
  if (answer == NULL) return NULL;
  PyObject* result = NULL;
  if (!PyTuple_Check(answer) || PyTuple_Size(answer) != 2) {
    PyErr_SetString(PyExc_TypeError, "a checked call must return (result, recipe)");
  } else {
    result = PyTuple_GetItem(answer, 0);
    Py_INCREF(result);
    PyObject* make_recipe = PyTuple_GetItem(answer, 1);
    int is_current =
        table != NULL && table_clears((const Table*)table) == clears; /* no reload() meanwhile */
    if (is_current && make_recipe != Py_None) keep(table, key, guard, make_recipe);
  }
  Py_DECREF(answer);
  return result;
}

/* True if a call that takes the Python path may be kept. Sets a guard, which the caller releases.
 * The guard is made before Python checks the tensors, so it passes only tensors that were checked
 * in this state. */
static int may_be_kept(const Key* key, Guard* guard) {
  if (key->num_tensors == 0) return 1;
  if (key_is_special(key)) return 0; /* guards cost more than this */
  if (wants_guard(key)) {
    *guard = guard_of(key);
    if (guard->check == NULL) return 0;
  }
  return !key_is_special(key);
}

static PyObject* call_quickly(const Signature* call, PyObject* table, PyObject* self,
                              PyObject* const* given, Py_ssize_t num_given, PyObject* names) {
  Key key;
  PyObject* values[kMaxParameters];
  PyObject* of_call =
      bind(call, given, num_given, names, values) ? key_of(call, table, values, &key) : NULL;
  Entry* entry = of_call ? table_find((Table*)of_call, &key) : NULL;
  PyObject* result = NULL;
  int done = 0, known = 0;
  if (entry != NULL) {
    entry_hold(entry); /* other calls may drop it from the table meanwhile */
    known = entry_trusts(entry, &key);
    done = known ? entry_run(entry, &key, &result) : 0;
    entry_release(entry);
  }
  if (done > 0) ++num_hits;
  if (done == 0) {
    Guard guard = {NULL, NULL, 0, 0};
    PyObject* keeps = of_call && !known && may_be_kept(&key, &guard) ? of_call : NULL;
    result = call_checked(call, self, given, num_given, names, keeps, &key, guard);
    guard_release(&guard);
  }
  Py_XDECREF(of_call);
  return result;
}

static int is_true(PyObject* answer) {
  int is_false = answer == Py_False;
  if (answer == NULL) PyErr_Clear();
  Py_XDECREF(answer);
  return !is_false;
}

/* True if all calls must go to checked(), or if `watch` raises. */
static int is_watched(const Signature* call) {
  if (call->watch == NULL) return 0;
  PyObject *object = PyTuple_GetItem(call->watch, 0), *name = PyTuple_GetItem(call->watch, 1);
  if (is_true(PyObject_GetAttr(object, name))) return 1;
  return is_true(PyObject_CallFunctionObjArgs(PyTuple_GetItem(call->watch, 2), NULL));
}

PyObject* check_all(PyObject* module, PyObject* on) {
  (void)module;
  checks_all += PyObject_IsTrue(on) == 1 ? 1 : -1;
  Py_RETURN_NONE;
}

static PyObject* call_function(PyObject* self, PyObject* const* given, Py_ssize_t num_given,
                               PyObject* names) {
  const Signature* call = (const Signature*)self;
  if (checks_all || is_watched(call)) {
    const Guard none = {NULL, NULL, 0, 0};
    return call_checked(call, NULL, given, num_given, names, NULL, NULL, none);
  }
  return call_quickly(call, call->table, NULL, given, num_given, names);
}

static PyObject* call_plan(PyObject* self, PyObject* const* given, Py_ssize_t num_given,
                           PyObject* names) {
  return call_quickly(run_signature, ((Plan*)self)->table, self, given, num_given, names);
}

static void signature_dealloc(PyObject* self) {
  Signature* call = (Signature*)self;
  Py_XDECREF(call->names);
  Py_XDECREF(call->defaults);
  Py_XDECREF(call->checked);
  Py_XDECREF(call->table);
  Py_XDECREF(call->watch);
  PyMem_Free(call->name);
  PyMem_Free(call->doc);
  free_object(self);
}

PyObject* make_signature_type(void) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, signature_dealloc}, {0, NULL}};
  static PyType_Spec spec = {"attune._attune.Signature", sizeof(Signature), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  if (context_table_name == NULL) context_table_name = PyUnicode_InternFromString("_calls");
  if (context_table_name == NULL) return NULL;
  signature_type = PyType_FromSpec(&spec);
  return signature_type;
}

static char* copy_of(const char* text) {
  char* copy = PyMem_Malloc(strlen(text) + 1);
  return copy ? strcpy(copy, text) : (char*)PyErr_NoMemory();
}

static int take_parameters(Signature* call) {
  call->count = (int)PyTuple_Size(call->names);
  if (call->count > kMaxParameters || call->required > call->count ||
      PyTuple_Size(call->defaults) != call->count - call->required) {
    PyErr_SetString(PyExc_ValueError,
                    "a call has too many parameters, or defaults that do not fit them");
    return -1;
  }
  for (int i = 0; i < call->count; ++i) {
    call->name_of[i] = PyTuple_GetItem(call->names, i);
    if (i >= call->required)
      call->default_of[i] = PyTuple_GetItem(call->defaults, i - call->required);
  }
  return 0;
}

static Signature* make_signature(const char* name, const char* doc, PyObject* names,
                                 PyObject* defaults, PyObject* checked) {
  Signature* call = (Signature*)allocate_object(signature_type);
  if (call == NULL) return NULL;
  Py_INCREF(names);
  Py_INCREF(defaults);
  Py_INCREF(checked);
  call->names = names;
  call->defaults = defaults;
  call->checked = checked;
  call->context = -1;
  call->name = copy_of(name);
  call->doc = copy_of(doc);
  if (call->name != NULL && call->doc != NULL) return call;
  Py_DECREF((PyObject*)call);
  return NULL;
}

PyObject* make_function(PyObject* module, PyObject* arguments) {
  const char *name, *doc;
  PyObject *names, *defaults, *checked, *table, *watch = NULL;
  int required, positional, context;
  if (!PyArg_ParseTuple(arguments, "ssO!O!iiiOO|O!:function", &name, &doc, &PyTuple_Type, &names,
                        &PyTuple_Type, &defaults, &required, &positional, &context, &checked,
                        &table, &PyTuple_Type, &watch))
    return NULL;
  if (!is_table(table) || (watch != NULL && PyTuple_Size(watch) != 3)) {
    PyErr_SetString(PyExc_TypeError, "table is not a Table, or watch is not a triple");
    return NULL;
  }
  Signature* call = make_signature(name, doc, names, defaults, checked);
  if (call == NULL) return NULL;
  call->required = required;
  call->positional = positional;
  call->context = context;
  Py_INCREF(table);
  call->table = table;
  Py_XINCREF(watch);
  call->watch = watch;
  call->definition = (PyMethodDef){call->name, (PyCFunction)(void (*)(void))call_function,
                                   METH_FASTCALL | METH_KEYWORDS, call->doc};
  PyObject* function = NULL;
  PyObject* of_module = PyModule_GetNameObject(module);
  if (of_module != NULL && take_parameters(call) == 0)
    function = PyCFunction_NewEx(&call->definition, (PyObject*)call, of_module);
  Py_XDECREF(of_module);
  Py_DECREF((PyObject*)call);
  return function;
}

static PyObject* plan_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  Plan* plan = (Plan*)allocate_object(type);
  if (plan == NULL) return NULL;
  plan->table = make_table(kPlanCalls);
  if (plan->table != NULL) return (PyObject*)plan;
  Py_DECREF((PyObject*)plan);
  return NULL;
}

static void plan_dealloc(PyObject* self) {
  Py_XDECREF(((Plan*)self)->table);
  free_object(self);
}

PyObject* make_plan_type(void) {
  static PyType_Slot slots[] = {{Py_tp_new, plan_new},
                                {Py_tp_dealloc, plan_dealloc},
                                {Py_tp_doc, "The base of Plan: owns the table of its runs."},
                                {0, NULL}};
  static PyType_Spec spec = {"attune._attune.PlanBase", sizeof(Plan), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  plan_type = PyType_FromSpec(&spec);
  return plan_type;
}

PyObject* make_plan_method(PyObject* module, PyObject* arguments) {
  const char *name, *doc;
  PyObject *names, *defaults, *checked;
  int required, positional;
  if (!PyArg_ParseTuple(arguments, "ssO!O!iiO:plan_method", &name, &doc, &PyTuple_Type, &names,
                        &PyTuple_Type, &defaults, &required, &positional, &checked))
    return NULL;
  Signature* call = make_signature(name, doc, names, defaults, checked);
  if (call == NULL) return NULL;
  call->required = required;
  call->positional = positional;
  call->definition = (PyMethodDef){call->name, (PyCFunction)(void (*)(void))call_plan,
                                   METH_FASTCALL | METH_KEYWORDS, call->doc};
  if (take_parameters(call) != 0) {
    Py_DECREF((PyObject*)call);
    return NULL;
  }
  run_signature = call; /* never freed: descriptors point into it */
  return PyDescr_NewMethod((PyTypeObject*)plan_type, &call->definition);
}

PyObject* counters(PyObject* module, PyObject* none) {
  return Py_BuildValue("{sKsKsK}", "hits", num_hits, "misses", num_misses, "kept", num_kept);
}
