/* SPDX-License-Identifier: Apache-2.0
 * The table of attune_problem's fields: all that the Python package knows of its layout. See
 * problem.h. */
#include "problem.h"

#include <stddef.h>

#include "library.h"

/* A row: the name in Python, which is that of the member, and where the member is. */
#define ROW(name, member) \
  { #name, ATTUNE_KIND(((attune_problem*)0)->member), offsetof(attune_problem, member), NULL }
#define F(name) ROW(name, name)
#define P(part, name) ROW(name, part.name)

static const Field fields[] = {F(op),
                               F(dtype),
                               F(dtype_kv),
                               F(dtype_o),
                               F(mask),
                               F(head_dim_qk),
                               F(head_dim_v),
                               F(num_heads_q),
                               F(num_heads_kv),
                               F(batch),
                               F(seqlen_q),
                               F(seqlen_kv),
                               F(window_left),
                               F(window_right),
                               F(softmax_scale),
                               F(dropout),
                               F(accuracy),
                               F(v_layout),
                               F(scale_block_q),
                               F(scale_block_kv),
                               P(quantise, rotation),
                               /* Scores */
                               P(scores, softcap),
                               P(scores, bias),
                               P(scores, relative_bias),
                               P(scores, alibi),
                               P(scores, mask_tensor),
                               P(scores, key_lengths),
                               P(scores, documents),
                               P(scores, prefix),
                               P(scores, chunk),
                               P(scores, score_mod),
                               P(scores, mask_mod),
                               P(scores, sinks),
                               P(scores, block_map),
                               /* Caches */
                               P(cache, page_size),
                               P(cache, packed_q),
                               P(cache, num_pages),
                               P(cache, packed_kv),
                               P(cache, batch_invariant),
                               P(cache, v_in_k),
                               P(cache, kv_factors),
                               P(append, rotary),
                               P(append, rotary_dim),
                               P(append, rotary_interleaved),
                               P(append, rotary_q),
                               /* Gradients */
                               P(backward, gradients),
                               P(backward, score_gradient),
                               P(backward, load),
                               P(backward, accumulate),
                               P(backward, deterministic),
                               P(backward, repeats),
                               {NULL, kInt32, 0, NULL}};

StructType problem_struct = {"Problem", sizeof(attune_problem), fields, 1, 1, NULL};

static int set_fields(PyObject* problem, PyObject* pairs) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(pairs); ++i) {
    const char* name;
    PyObject* value;
    if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "sO", &name, &value) ||
        struct_set(problem, &problem_struct, name, value) != 0)
      return -1;
  }
  return 0;
}

PyObject* make_problem(PyObject* module, PyObject* arguments) {
  const char* text;
  PyObject* pairs;
  if (!PyArg_ParseTuple(arguments, "yO!:problem", &text, &PyTuple_Type, &pairs)) return NULL;
  PyObject* problem = make_struct(&problem_struct);
  if (problem == NULL) return NULL;
  attune_problem* parsed = struct_data(problem, &problem_struct);
  if (check_status(library.attune_problem_parse_sized(text, parsed, sizeof *parsed)) != 0 ||
      set_fields(problem, pairs) != 0)
    Py_CLEAR(problem);
  return problem;
}
