/* SPDX-License-Identifier: Apache-2.0
 * The table of attune_problem's fields: all that the Python package knows of its layout. See
 * problem.h. */
#include "structs.h"

#include <stddef.h>

#include "library.h"

/* A row: the name in Python, and the member of attune_problem or of one of its parts. */
#define ROW(name, member) \
  { #name, ATTUNE_KIND(((attune_problem*)0)->member), offsetof(attune_problem, member), NULL }
#define F(name) ROW(name, name)
#define SCORES(name) ROW(name, scores.name)
#define BACKWARD(name) ROW(name, backward.name)
#define CACHE(name) ROW(name, cache.name)
#define APPEND(name) ROW(name, append.name)

/* clang-format off */
static const Field fields[] = {
    F(op), F(dtype), F(dtype_kv), F(dtype_o), F(head_dim_qk), F(head_dim_v), F(num_heads_q),
    F(num_heads_kv), F(batch), F(seqlen_q), F(seqlen_kv), F(window_left), F(window_right), F(mask),
    F(softmax_scale), F(dropout), F(accuracy), F(v_layout), F(scale_block_q), F(scale_block_kv),
    F(max_logits),
    SCORES(score_mod), SCORES(mask_mod), SCORES(softcap), SCORES(bias), SCORES(relative_bias),
    SCORES(alibi), SCORES(mask_tensor), SCORES(key_lengths), SCORES(documents), SCORES(prefix),
    SCORES(chunk), SCORES(sinks), SCORES(block_map),
    BACKWARD(gradients), BACKWARD(score_gradient), BACKWARD(load), BACKWARD(repeats),
    BACKWARD(accumulate), BACKWARD(deterministic),
    CACHE(num_pages), CACHE(page_size), CACHE(packed_q), CACHE(packed_kv), CACHE(batch_invariant),
    CACHE(v_in_k), CACHE(kv_factors), CACHE(listed_keys), CACHE(key_indices),
    APPEND(rotary), APPEND(rotary_dim), APPEND(rotary_interleaved), APPEND(rotary_q),
    ROW(rotation, quantise.rotation),
    {NULL, kInt32, 0, NULL}};
/* clang-format on */

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
