/* SPDX-License-Identifier: Apache-2.0
 * The functions of attune.h as functions of Python. Contexts, plans, programs and memory are ints
 * of addresses, and None is NULL. Texts and paths that are given are bytes. Structs are objects of
 * structs.h. A failure raises attune.Error. Functions that may wait release the GIL. */
#ifndef ATTUNE_PYTHON_INTERFACE_H_
#define ATTUNE_PYTHON_INTERFACE_H_

#include "python.h"

/* The methods, which need a connected library:
 *   context_create(target, store, bundles, memory_bundles, policy, no_jit, capture_file, pin,
 *     nvrtc_folders): lists are tuples of bytes; memory_bundles must live as long as the context
 *   context_destroy, context_device, context_pin_digest, context_reload (context)
 *   problem_check(context, problem): a line per template
 *   plan_get(context, problem, layout): layout is an Operands or None
 *   plan_explain, plan_release (plan)
 *   plan_info(plan): a dict; device_ordinal is None if the library is too old to set it
 *   workspace_init(plan, workspace, workspace_bytes, stream)
 *   run(ordinal, plan, operands, workspace, workspace_bytes, stream): ordinal N of cuda:N, -1 on a
 *     CPU
 *   launcher(.. as run, keep): a function without arguments that repeats this run; keep is an
 *     object that keeps its addresses valid
 *   program_parse(kind, text, name); program_text, program_nodes (program)
 *   block_map_layout(problem): a BlockMapStruct without memory
 *   block_map_build(context, problem, scores, map, stream)
 *   dropout_rate(rate); dropout_mask(rate, seed, offset, extents, address)
 *   group_schedule(problem, request): its text
 *   rotary(): a Rotary with defaults; rotary_table(rotary, first_position, count, cos, sin)
 *   version() */
extern PyMethodDef interface_methods[];

PyObject* make_launcher_type(void);

/* The functions of graphs.c find the CUDA graph that a stream is captured into, and say if that
 * graph still exists. Used by ops/workspace.py. */

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

#endif /* ATTUNE_PYTHON_INTERFACE_H_ */
