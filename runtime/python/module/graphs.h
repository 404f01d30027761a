/* SPDX-License-Identifier: Apache-2.0
 * Which CUDA graph a stream is captured into, and whether that graph is still there. Used by _workspace.py. */
#ifndef ATTUNE_PYTHON_GRAPHS_H_
#define ATTUNE_PYTHON_GRAPHS_H_

#include "python.h"

/* watches_graphs(): whether the driver has what the others need. */
PyObject* watches_graphs(PyObject* module, PyObject* none);

/* capture_of(stream): (id of the capture, handle of its graph); None where nothing is captured, or that cannot be known. */
PyObject* capture_of(PyObject* module, PyObject* arguments);

/* watch_graph(graph): a word that tells when the graph and all that was made of it are gone, for graph_is_gone; 0 where the driver cannot. */
PyObject* watch_graph(PyObject* module, PyObject* arguments);

/* graph_is_gone(word). When it has said so once the word is no more. */
PyObject* graph_is_gone(PyObject* module, PyObject* arguments);

/* relax_captures(): the calling thread may allocate while others capture. */
PyObject* relax_captures(PyObject* module, PyObject* none);

#endif /* ATTUNE_PYTHON_GRAPHS_H_ */
