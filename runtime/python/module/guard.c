/* SPDX-License-Identifier: Apache-2.0
 * Makes and calls guards: see guard.h. */
#include "guard.h"

int wants_guard(const Key* key) { return key->num_tensors > 0 && guard_maker() != NULL; }

/* Returns the tensors of a call, each once: guards refuse a tensor that is given twice. */
static PyObject* tensors_of(const Key* key, int* count) {
  PyObject* found[kMaxOperands];
  *count = 0;
  for (int i = 0; i < key->num_operands; ++i) {
    if (key->operands[i].type->kind != kTensor) continue;
    int seen = 0;
    while (seen < *count && found[seen] != key->operands[i].object) ++seen;
    if (seen == *count) found[(*count)++] = key->operands[i].object;
  }
  PyObject* tuple = PyTuple_New(*count);
  for (int i = 0; tuple != NULL && i < *count; ++i) {
    Py_INCREF(found[i]);
    PyTuple_SetItem(tuple, i, found[i]);
  }
  return tuple;
}

Guard guard_of(const Key* key) {
  Guard guard = {NULL, autocast_scope(), 0, 0};
  PyObject* tensors = tensors_of(key, &guard.num_tensors);
  if (tensors != NULL) guard.check = PyObject_Call(guard_maker(), tensors, NULL);
  Py_XDECREF(tensors);
  if (guard.check == NULL) PyErr_Clear(); /* the Python path raises the error */
  for (int i = 0; i < key->num_operands; ++i)
    if (key->operands[i].type->kind == kTensor && requires_gradient(key->operands[i].object))
      guard.without_history = 1;
  return guard;
}

void guard_release(Guard* guard) {
  Py_CLEAR(guard->check);
  Py_CLEAR(guard->scope);
}

void guards_add(Guards* guards, Guard guard) {
  if (guard.check == NULL) return;
  Py_INCREF(guard.check);
  Py_XINCREF(guard.scope);
  Guard old = guards->kept[guards->next];
  guards->kept[guards->next] = guard;
  guards->next = (guards->next + 1) % kGuardsKept;
  if (guards->count < kGuardsKept) ++guards->count;
  guard_release(&old);
}

static int is_scope(PyObject* scope) {
  if (scope == NULL) return 1;
  PyObject* now = autocast_scope();
  int same = now != NULL && PyObject_RichCompareBool(scope, now, Py_EQ) == 1;
  Py_XDECREF(now);
  return same;
}

/* True if a guard passes the tensors. The guard that passed last is moved to the front. */
int guards_pass(Guards* guards, const Key* key) {
  if (is_observed()) return 0;
  int passed = 0, num_tensors;
  PyObject* tensors = tensors_of(key, &num_tensors);
  for (int i = 0; tensors != NULL && !passed && i < guards->count; ++i) {
    Guard guard = guards->kept[i];
    if (guard.num_tensors != num_tensors || (guard.without_history && may_record())) continue;
    Py_INCREF(guard.check); /* other calls may replace it meanwhile */
    Py_XINCREF(guard.scope);
    PyObject* answer = PyObject_Call(guard.check, tensors, NULL);
    passed = answer == Py_True && is_scope(guard.scope);
    Py_XDECREF(answer);
    if (passed && guards->kept[i].check == guard.check) {
      guards->kept[i] = guards->kept[0];
      guards->kept[0] = guard;
    }
    guard_release(&guard);
  }
  Py_XDECREF(tensors);
  if (PyErr_Occurred()) PyErr_Clear();
  return passed;
}

void guards_clear(Guards* guards) {
  for (int i = 0; i < guards->count; ++i) guard_release(&guards->kept[i]);
  guards->count = guards->next = 0;
}
