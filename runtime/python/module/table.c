/* SPDX-License-Identifier: Apache-2.0
 * The table of entries: open addressing with linear steps, never more than half full. */
#include "entry.h"

#include <string.h>

struct Table {
  PyObject_HEAD Entry** slots;
  uint32_t mask; /* of a slot's number */
  uint32_t count;
  uint32_t capacity; /* entries */
  uint64_t lookups;
  uint64_t clears;
};

static PyObject* table_type;

static uint32_t home_of(const Table* table, const Entry* entry) {
  return (uint32_t)entry_hash(entry) & table->mask;
}

static PyObject* table_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"capacity", NULL};
  int capacity;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "i:Table", names, &capacity)) return NULL;
  if (capacity < 1 || capacity > 1 << 20) {
    PyErr_Format(PyExc_ValueError, "capacity is %d; must be 1 to 1048576", capacity);
    return NULL;
  }
  Table* table = (Table*)allocate_object(type);
  if (table == NULL) return NULL;
  uint32_t slots = 4;
  while (slots < 2u * (uint32_t)capacity) slots *= 2;
  table->mask = slots - 1;
  table->capacity = (uint32_t)capacity;
  table->slots = PyMem_Calloc(slots, sizeof *table->slots);
  if (table->slots == NULL) {
    Py_DECREF((PyObject*)table);
    return PyErr_NoMemory();
  }
  return (PyObject*)table;
}

/* Empties each slot before it releases the entry: releasing runs Python code, which may use the
 * table. */
static PyObject* table_clear(PyObject* self, PyObject* none) {
  Table* table = (Table*)self;
  ++table->clears;
  for (uint32_t i = 0; table->slots != NULL && i <= table->mask; ++i) {
    Entry* entry = table->slots[i];
    if (entry == NULL) continue;
    table->slots[i] = NULL;
    --table->count;
    entry_release(entry);
  }
  Py_RETURN_NONE;
}

static void table_dealloc(PyObject* self) {
  PyObject* none = table_clear(self, NULL);
  Py_XDECREF(none);
  PyMem_Free(((Table*)self)->slots);
  free_object(self);
}

static Py_ssize_t table_length(PyObject* self) { return (Py_ssize_t)((Table*)self)->count; }

PyObject* make_table_type(void) {
  static PyMethodDef methods[] = {
      {"clear", table_clear, METH_NOARGS,
       "Forgets all entries: the next calls take the Python path once."},
      {NULL, NULL, 0, NULL}};
  static PyType_Slot slots[] = {{Py_tp_new, table_new},
                                {Py_tp_dealloc, table_dealloc},
                                {Py_tp_methods, methods},
                                {Py_sq_length, table_length},
                                {Py_tp_doc, "Table(capacity): entries of known calls, by key."},
                                {0, NULL}};
  static PyType_Spec spec = {"attune._attune.Table", sizeof(Table), 0, Py_TPFLAGS_DEFAULT, slots};
  table_type = PyType_FromSpec(&spec);
  return table_type;
}

int is_table(PyObject* object) {
  return table_type != NULL && (PyObject*)Py_TYPE(object) == table_type;
}

PyObject* make_table(int capacity) {
  PyObject* number = PyLong_FromLong(capacity);
  PyObject* table = number ? PyObject_CallFunctionObjArgs(table_type, number, NULL) : NULL;
  Py_XDECREF(number);
  return table;
}

uint64_t table_clears(const Table* table) { return table->clears; }

Entry* table_find(Table* table, const Key* key) {
  uint64_t hash = key_hash(key);
  for (uint32_t i = (uint32_t)hash & table->mask; table->slots[i]; i = (i + 1) & table->mask)
    if (entry_matches(table->slots[i], hash, key)) {
      *entry_used(table->slots[i]) = ++table->lookups;
      return table->slots[i];
    }
  return NULL;
}

/* Removes the entry of a slot, and moves later entries back so that lookups still find them. */
static Entry* take_out(Table* table, uint32_t hole) {
  Entry* taken = table->slots[hole];
  for (uint32_t i = (hole + 1) & table->mask; table->slots[i]; i = (i + 1) & table->mask) {
    uint32_t steps_from_home = (i - home_of(table, table->slots[i])) & table->mask;
    if (steps_from_home < ((i - hole) & table->mask)) continue;
    table->slots[hole] = table->slots[i];
    hole = i;
  }
  table->slots[hole] = NULL;
  --table->count;
  return taken;
}

static uint32_t oldest(const Table* table) {
  uint32_t found = 0;
  uint64_t used = UINT64_MAX;
  for (uint32_t i = 0; i <= table->mask; ++i)
    if (table->slots[i] && *entry_used(table->slots[i]) < used) {
      used = *entry_used(table->slots[i]);
      found = i;
    }
  return found;
}

void table_keep(Table* table, Entry* entry, const Key* key, Guard guard) {
  Entry* found = table_find(table, key);
  if (found != NULL) { /* from another scope, or another thread was faster */
    guards_add(entry_guards(found), guard);
    entry_release(entry);
    return;
  }
  Entry* dropped = table->count == table->capacity ? take_out(table, oldest(table)) : NULL;
  uint32_t i = home_of(table, entry);
  while (table->slots[i] != NULL) i = (i + 1) & table->mask;
  *entry_used(entry) = ++table->lookups;
  table->slots[i] = entry;
  ++table->count;
  if (dropped != NULL) entry_release(dropped);
}
