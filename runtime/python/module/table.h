/* SPDX-License-Identifier: Apache-2.0
 * A hash table of entries by key, of a bounded number: the one used least recently goes. Contexts and
 * plans own one each. */
#ifndef ATTUNE_PYTHON_TABLE_H_
#define ATTUNE_PYTHON_TABLE_H_

#include "entry.h"

typedef struct Table Table;

/* The Python type Table(capacity), with clear() and len(). */
PyObject* make_table_type(void);
int is_table(PyObject* object);
PyObject* make_table(int capacity);

/* Borrowed, or NULL. */
Entry* table_find(Table* table, const Key* key);

/* How often it was cleared. */
uint64_t table_clears(const Table* table);

/* Takes over the reference. */
void table_keep(Table* table, Entry* entry, const Key* key, Guard guard);

#endif /* ATTUNE_PYTHON_TABLE_H_ */
