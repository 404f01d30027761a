/* SPDX-License-Identifier: Apache-2.0
 * Finds the CUDA graph that a stream is captured into, and says if that graph still exists. Used by
 * ops/workspace.py. */
#ifndef ATTUNE_PYTHON_GRAPHS_H_
#define ATTUNE_PYTHON_GRAPHS_H_

#include "python.h"

/* watches_graphs(): true if the driver has the functions that capture_of() and watch_graph() call.
 */
PyObject* watches_graphs(PyObject* module, PyObject* none);

/* capture_of(stream): (id of the capture, handle of its graph); None if nothing is captured or the
 * driver cannot tell. */
PyObject* capture_of(PyObject* module, PyObject* arguments);

/* watch_graph(graph): returns the address of a word for graph_is_gone(). The driver sets the word
 * when the graph and everything made from it are gone. 0 if the driver cannot watch graphs. */
PyObject* watch_graph(PyObject* module, PyObject* arguments);

/* graph_is_gone(word): true if the graph is gone. Then it also frees the word. */
PyObject* graph_is_gone(PyObject* module, PyObject* arguments);

/* relax_captures(): lets the calling thread allocate while others capture. */
PyObject* relax_captures(PyObject* module, PyObject* none);

#endif /* ATTUNE_PYTHON_GRAPHS_H_ */
