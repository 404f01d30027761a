/* SPDX-License-Identifier: Apache-2.0
 * Tables of the fields of attune_operands and of the structs that it points to: see operands.h.
 * The kind of a field follows from its type in attune.h. */
#include "structs.h"

#include <attune/attune.h>
#include <stddef.h>

static StructType tensor_struct, scale_struct, capture_struct, gradient_struct, dropout_struct,
    cache_struct, append_struct;

/* clang-format off */
#define KIND(member)                                                                       \
  _Generic(member, attune_tensor: kInner, attune_scale: kInner,                            \
           const attune_capture*: kBuffer, const attune_scalar*: kBuffer,                  \
           const attune_score_operands*: kPointer, const attune_block_map*: kPointer,      \
           const attune_gradient_operands*: kPointer, const attune_dropout_operands*: kPointer, \
           const attune_cache_operands*: kPointer, const attune_append_operands*: kPointer, \
           default: ATTUNE_KIND(member))
#define OF(member)                                                                         \
  _Generic(member, attune_tensor: &tensor_struct, attune_scale: &scale_struct,             \
           const attune_score_operands*: &score_operands_struct,                           \
           const attune_block_map*: &block_map_struct,                                     \
           const attune_gradient_operands*: &gradient_struct,                              \
           const attune_dropout_operands*: &dropout_struct,                                \
           const attune_cache_operands*: &cache_struct,                                    \
           const attune_append_operands*: &append_struct, default: NULL)
/* clang-format on */
#define F(member) \
  { #member, KIND(((S*)0)->member), offsetof(S, member), OF(((S*)0)->member) }
#define STRUCT(name, has_size, ...) \
  { name, sizeof(S), (const Field[]){__VA_ARGS__, {NULL, kInt32, 0, NULL}}, has_size, 0, NULL }

#define S attune_tensor
static StructType tensor_struct =
    STRUCT("Tensor", 0, F(data), F(batch_stride), F(row_stride), F(head_stride));
#undef S
#define S attune_scale
static StructType scale_struct = STRUCT("Scale", 0, F(data), F(batch_stride), F(head_stride),
                                        F(block_stride), F(heads_per_scale));
#undef S
#define S attune_capture /* make_score_operands() makes arrays of it; Python needs the offsets */
static StructType capture_struct = STRUCT("Capture", 0, F(name), F(data));
#undef S
#define S attune_score_operands
StructType score_operands_struct =
    STRUCT("ScoreOperands", 0, F(captures), F(num_captures), F(q_position0), F(kv_position0),
           F(scalars), F(num_scalars));
#undef S
#define S attune_block_map
StructType block_map_struct =
    STRUCT("BlockMapStruct", 1, F(data), F(batch), F(num_heads), F(seqlen_q), F(seqlen_kv),
           F(batch_stride), F(head_stride), F(row_stride));
#undef S
#define S attune_gradient_operands
static StructType gradient_struct =
    STRUCT("GradientOperands", 1, F(dout), F(dq), F(dk), F(dv), F(dlse), F(dlse_batch_stride),
           F(dlse_head_stride), F(dscores));
#undef S
#define S attune_dropout_operands
static StructType dropout_struct = STRUCT("DropoutOperands", 1, F(seed), F(offset), F(seed_address),
                                          F(offset_address), F(state), F(head0), F(row0));
#undef S
#define S attune_cache_operands
static StructType cache_struct =
    STRUCT("CacheOperands", 1, F(kv_lengths), F(q_begins), F(page_table), F(page_table_stride),
           F(slots), F(kv_begins), F(num_pages), F(key_indices), F(key_counts),
           F(key_indices_row_stride), F(key_indices_head_stride), F(k_factors), F(v_factors));
#undef S
#define S attune_append_operands
static StructType append_struct =
    STRUCT("AppendOperands", 1, F(k), F(v), F(cos), F(sin), F(positions), F(row_slots),
           F(index_bytes), F(num_rows), F(num_positions));
#undef S
#define S attune_rotary
StructType rotary_struct =
    STRUCT("Rotary", 1, F(rotary_dim), F(scaling), F(base), F(factor), F(low_freq_factor),
           F(high_freq_factor), F(beta_fast), F(beta_slow), F(mscale), F(mscale_all_dim),
           F(attention_factor), F(original_max_position),
           {"frequencies", kBuffer, offsetof(S, frequencies), NULL});
#undef S
#define S attune_operands
StructType operands_struct =
    STRUCT("Operands", 1, F(q), F(k), F(v), F(o), F(lse), F(lse_batch_stride), F(lse_head_stride),
           F(q_scale), F(k_scale), F(v_scale), F(o_scale), F(scores), F(block_map), F(gradients),
           F(dropout), F(cache), F(append));
#undef S

int add_operand_structs(PyObject* module) {
  StructType* const structs[] = {&operands_struct, &tensor_struct,    &scale_struct,
                                 &capture_struct,  &block_map_struct, &score_operands_struct,
                                 &gradient_struct, &dropout_struct,   &cache_struct,
                                 &append_struct,   &rotary_struct,    NULL};
  for (StructType* const* each = structs; *each != NULL; ++each)
    if (add_struct(module, *each) != 0) return -1;
  return 0;
}

static int take_numbers(PyObject* tuple, int64_t* numbers) {
  enum { kMaxRank = 4 };
  Py_ssize_t rank = PyTuple_Size(tuple);
  if (rank > kMaxRank) PyErr_SetString(PyExc_ValueError, "a capture has more than 4 axes");
  for (Py_ssize_t i = 0; i < rank && !PyErr_Occurred(); ++i)
    numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
  return PyErr_Occurred() ? -1 : 0;
}

static int take_capture(PyObject* item, void* at) {
  attune_capture* capture = at;
  PyObject *data, *strides, *extents;
  *capture = (attune_capture){0};
  if (!PyArg_ParseTuple(item, "sOO!O!", &capture->name, &data, &PyTuple_Type, &strides,
                        &PyTuple_Type, &extents))
    return -1;
  capture->data = data == Py_None ? NULL : PyLong_AsVoidPtr(data);
  return take_numbers(strides, capture->strides) != 0 ? -1
                                                      : take_numbers(extents, capture->extents);
}

static int take_scalar(PyObject* item, void* at) {
  attune_scalar* scalar = at;
  return PyArg_ParseTuple(item, "sd", &scalar->name, &scalar->value) ? 0 : -1;
}

/* Sets a field to an array of structs, whose names point into the items of the list. */
static int set_array(PyObject* scores, const char* name, PyObject* list, size_t each,
                     int (*take)(PyObject* item, void* at)) {
  Py_ssize_t count = PyList_Size(list);
  PyObject* made = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)each);
  int failed = made == NULL;
  for (Py_ssize_t i = 0; !failed && i < count; ++i)
    failed = take(PyList_GetItem(list, i), PyBytes_AsString(made) + (size_t)i * each) != 0;
  failed = failed || struct_set(scores, &score_operands_struct, name, made) != 0;
  Py_XDECREF(made);
  return failed ? -1 : 0;
}

PyObject* make_score_operands(PyObject* module, PyObject* arguments) {
  PyObject *captures, *scalars;
  int q_position0, kv_position0;
  if (!PyArg_ParseTuple(arguments, "O!O!ii:score_operands", &PyList_Type, &captures, &PyList_Type,
                        &scalars, &q_position0, &kv_position0))
    return NULL;
  PyObject* made = make_struct(&score_operands_struct);
  if (made == NULL) return NULL;
  attune_score_operands* scores = struct_data(made, &score_operands_struct);
  scores->num_captures = (size_t)PyList_Size(captures);
  scores->num_scalars = (size_t)PyList_Size(scalars);
  scores->q_position0 = q_position0;
  scores->kv_position0 = kv_position0;
  if (set_array(made, "captures", captures, sizeof(attune_capture), take_capture) != 0 ||
      set_array(made, "scalars", scalars, sizeof(attune_scalar), take_scalar) != 0 ||
      PyObject_SetAttrString(made, "kept", arguments) != 0)
    Py_CLEAR(made);
  return made;
}
