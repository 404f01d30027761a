/* SPDX-License-Identifier: Apache-2.0
 * CPython's stable interface of 3.10. Only this file includes its headers, and all files here
 * include this file first. The module that they make, _attune, is the fast path of attention(),
 * Plan.run() and Plan.launcher(); module.c has the functions that Python sees. */
#ifndef ATTUNE_PYTHON_H_
#define ATTUNE_PYTHON_H_

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

#ifdef Py_GIL_DISABLED
#error "_attune relies on the GIL and on the stable ABI; free-threaded builds use ctypes"
#endif

#endif /* ATTUNE_PYTHON_H_ */
