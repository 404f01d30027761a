/* SPDX-License-Identifier: Apache-2.0
 * CPython's stable interface of 3.10; in a free-threaded build, which has none, its full interface.
 * Only this file includes CPython's headers, and all files here include this file first. The module
 * that they make is _attune; module.c has the functions that Python sees. */
#ifndef ATTUNE_PYTHON_H_
#define ATTUNE_PYTHON_H_

#include <pyconfig.h> /* says if the build is free-threaded */
#if !defined(Py_GIL_DISABLED) && !defined(Py_LIMITED_API)
#define Py_LIMITED_API 0x030A0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

/* Returns a new object of a type, of zeros; NULL with an exception. */
static inline PyObject* allocate_object(void* type) {
  return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

/* Frees an object whose members are released: the end of a type's dealloc. */
static inline void free_object(PyObject* self) {
  PyObject* type = (PyObject*)Py_TYPE(self);
  ((freefunc)PyType_GetSlot(Py_TYPE(self), Py_tp_free))(self);
  Py_DECREF(type);
}

#endif /* ATTUNE_PYTHON_H_ */
