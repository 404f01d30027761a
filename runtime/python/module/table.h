/* SPDX-License-Identifier: Apache-2.0
 * Table: a hash table of entries by key with a limited size. A full table drops the least recently
 * used entry.
 * Each context and each plan owns one. */
#ifndef ATTUNE_PYTHON_TABLE_H_
#define ATTUNE_PYTHON_TABLE_H_

#include "entry.h"

typedef struct Table Table;

/* The Python type Table(capacity), with clear() and len(). */
PyObject* make_table_type(void);
int is_table(PyObject* object);
PyObject* make_table(int capacity);

/* Returns the entry of a key, borrowed, or NULL. */
Entry* table_find(Table* table, const Key* key);

/* Returns how often the table was cleared. */
uint64_t table_clears(const Table* table);

/* Adds an entry, and takes over its reference. */
void table_keep(Table* table, Entry* entry, const Key* key, Guard guard);

#endif /* ATTUNE_PYTHON_TABLE_H_ */
