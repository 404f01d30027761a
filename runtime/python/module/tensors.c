/* SPDX-License-Identifier: Apache-2.0
 * Tensors and types of arguments: see tensors.h. */
#include "tensors.h"

#include <string.h>

enum { kTypesKept = 64 };

static KnownType known[kTypesKept];
static int num_known;
static PyObject* probe_type;
static PyObject* make_guard;           /* or None */
static PyObject* is_grad_enabled;      /* a function of PyTorch, like the next four */
static PyObject* count_dispatch_modes; /* modes that observe calls */
static PyObject* is_tracing;           /* torch.jit.trace, which observes calls too */
static PyObject* is_profiled;          /* torch.profiler likewise */
static PyObject* is_autocast_on;
static PyObject* autocast_state; /* its settings */
static PyObject* forward_ad;     /* the module, which knows the depth of nested derivatives */
static PyObject* requires_grad_name;
static PyObject* is_neg_name;
static PyObject* array_struct_name;
static PyObject* current_level_name;

int set_probe(PyObject* probe) {
  if (requires_grad_name == NULL) {
    requires_grad_name = PyUnicode_InternFromString("requires_grad");
    is_neg_name = PyUnicode_InternFromString("is_neg");
    array_struct_name = PyUnicode_InternFromString("__array_struct__");
    current_level_name = PyUnicode_InternFromString("_current_level");
    if (!requires_grad_name || !is_neg_name || !array_struct_name || !current_level_name) return -1;
  }
  PyObject* old = probe_type;
  Py_INCREF(probe);
  probe_type = probe;
  Py_XDECREF(old);
  return 0;
}

/* Returns the newest table of the known major version, if it reads tensors. */
static const DlpackExchange* exchange_of(PyObject* capsule) {
  const DlpackExchange* found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
  while (found != NULL && found->major != kDlpackMajor) found = found->previous;
  return found != NULL && found->tensor_from_object && found->current_stream ? found : NULL;
}

/* Keeps the objects that _probe() in _quick.py returned after the capsule: those that `questions`
 * lists. Only the first call has an effect; they are kept for the life of the process. */
static void take_questions(PyObject* answer) {
  PyObject** questions[] = {&make_guard,  &is_grad_enabled, &count_dispatch_modes, &is_tracing,
                            &is_profiled, &is_autocast_on,  &autocast_state,       &forward_ad};
  enum { kQuestions = sizeof questions / sizeof *questions };
  if (is_grad_enabled != NULL || PyTuple_Size(answer) != kQuestions + 1) return;
  for (int i = 0; i < kQuestions; ++i) {
    *questions[i] = PyTuple_GetItem(answer, i + 1);
    Py_INCREF(*questions[i]);
  }
}

static void take_answer(PyObject* answer, KnownType* type) {
  if (PyLong_Check(answer)) {
    long kind = PyLong_AsLong(answer);
    if (kind >= kIdentity && kind <= kContext) type->kind = (TypeKind)kind;
  } else if (PyTuple_Check(answer)) {
    type->exchange = exchange_of(PyTuple_GetItem(answer, 0));
    take_questions(answer);
    if (type->exchange != NULL && is_grad_enabled != NULL) type->kind = kTensor;
  }
}

/* Examines a type, which is then kept, so that its address is not reused. */
static const KnownType* learn(PyTypeObject* type) {
  static const KnownType unknown;
  if (num_known == kTypesKept || probe_type == NULL) return &unknown;
  PyObject* answer = PyObject_CallFunctionObjArgs(probe_type, (PyObject*)type, NULL);
  KnownType found = {type, kUnknown, NULL};
  if (answer != NULL) take_answer(answer, &found);
  Py_XDECREF(answer);
  if (PyErr_Occurred()) PyErr_WriteUnraisable(probe_type); /* an error there only costs time */
  for (int i = 0; i < num_known; ++i)
    if (known[i].type == type) return &known[i]; /* another thread was faster */
  if (num_known == kTypesKept) return &unknown;
  Py_INCREF((PyObject*)type);
  known[num_known] = found;
  return &known[num_known++];
}

const KnownType* known_type(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  for (int i = 0; i < num_known; ++i)
    if (known[i].type == type) return &known[i];
  return learn(type);
}

/* True if an operand may be a negative view. PyTorch makes them of imaginary parts; kernels take no
 * elements of 64 bits. */
static int may_be_negative(const Operand* operand) {
  int code = (int)(operand->element >> 8), bits = (int)(operand->element & 0xFF);
  return bits >= 16 && (code == kDlpackFloat || code == kDlpackBfloat);
}

static int asked_is_not(PyObject* answer, PyObject* expected) {
  if (answer == NULL) PyErr_Clear();
  Py_XDECREF(answer);
  return answer != expected;
}

int requires_gradient(PyObject* tensor) {
  return asked_is_not(PyObject_GetAttr(tensor, requires_grad_name), Py_False);
}

int may_record(void) {
  return asked_is_not(PyObject_CallFunctionObjArgs(is_grad_enabled, NULL), Py_False);
}

static int watches(PyObject* watcher) {
  PyObject* answer = PyObject_CallFunctionObjArgs(watcher, NULL);
  int watched = answer == NULL ? 1 : PyObject_IsTrue(answer);
  Py_XDECREF(answer);
  if (PyErr_Occurred()) PyErr_Clear();
  return watched != 0;
}

/* True if there may be dual tensors, which neither types nor requires_grad nor dispatch keys
 * show. */
static int in_forward_derivative(void) {
  if (forward_ad == NULL || forward_ad == Py_None) return 0;
  PyObject* level = PyObject_GetAttr(forward_ad, current_level_name);
  int inside = level == NULL || PyLong_AsLong(level) >= 0;
  Py_XDECREF(level);
  if (PyErr_Occurred()) PyErr_Clear();
  return inside;
}

int is_observed(void) {
  if (count_dispatch_modes == NULL) return in_forward_derivative();
  return watches(count_dispatch_modes) || watches(is_profiled) || in_forward_derivative();
}

PyObject* autocast_scope(void) {
  if (is_autocast_on == NULL || !watches(is_autocast_on)) return NULL;
  PyObject* found = PyObject_CallFunctionObjArgs(autocast_state, NULL);
  if (found == NULL) PyErr_Clear();
  return found;
}

/* Asks PyTorch once per call. Guards see autocast and torch.jit.trace; without guards Python looks
 * at such calls. */
static Recording ask_recording(void) {
  if (is_observed() || watches(is_tracing)) return kWatched;
  if (guard_maker() == NULL && watches(is_autocast_on)) return kWatched;
  return may_record() ? kRecording : kNotRecording;
}

PyObject* guard_maker(void) { return make_guard == Py_None ? NULL : make_guard; }

int is_special(const Operand* operand, Recording* recording) {
  if (*recording == kNotAsked) *recording = ask_recording();
  if (*recording == kWatched) return 1;
  PyObject* tensor = operand->object;
  if (*recording == kRecording && requires_gradient(tensor)) return 1;
  return may_be_negative(operand) &&
         asked_is_not(PyObject_CallMethodObjArgs(tensor, is_neg_name, NULL), Py_False);
}

static int64_t size_of(const int64_t* shape, int rank) {
  int64_t size = 1;
  for (int i = 0; i < rank; ++i) size *= shape[i];
  return size;
}

static int read_tensor(const KnownType* type, Operand* operand, Layout* layout) {
  DlpackTensor tensor;
  memset(&tensor, 0, sizeof tensor);
  if (type->exchange->tensor_from_object(operand->object, &tensor) != 0) return 0;
  if (tensor.rank < 0 || tensor.rank > kMaxRank || tensor.type_lanes != 1) return 0;
  if (tensor.rank > 0 && (tensor.shape == NULL || tensor.strides == NULL)) return 0;
  for (int i = 0; i < tensor.rank; ++i) {
    layout->shape[i] = tensor.shape[i];
    layout->strides[i] = tensor.strides[i];
  }
  operand->size = size_of(layout->shape, tensor.rank);
  operand->data = operand->size ? (char*)tensor.data + tensor.byte_offset : NULL;
  operand->device_type = tensor.device_type;
  operand->device_id = tensor.device_id;
  operand->rank = tensor.rank;
  operand->element = (uint32_t)tensor.type_code << 8 | tensor.type_bits;
  operand->writable = 1;
  return tensor.data != NULL || operand->size == 0;
}

/* NumPy's array interface as a struct; see "The array interface protocol" in NumPy's manual. */
typedef struct ArrayStruct {
  int two;
  int rank;
  char kind;
  int item_bytes;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides; /* bytes */
  void* data;
  PyObject* fields;
} ArrayStruct;

enum { kNotSwapped = 0x200, kWritable = 0x400 };

static int read_array_struct(const ArrayStruct* array, Operand* operand, Layout* layout) {
  int plain = array->kind == 'f' || array->kind == 'u' || array->kind == 'i' || array->kind == 'b';
  if (array->two != 2 || array->rank < 0 || array->rank > kMaxRank || !plain ||
      !(array->flags & kNotSwapped))
    return 0;
  for (int i = 0; i < array->rank; ++i) {
    layout->shape[i] = array->shape[i];
    layout->strides[i] = array->strides[i];
  }
  operand->size = size_of(layout->shape, array->rank);
  operand->data = operand->size ? array->data : NULL;
  operand->device_type = kDlpackCpu;
  operand->device_id = 0;
  operand->rank = array->rank;
  operand->element = (uint32_t)array->kind << 8 | (uint32_t)array->item_bytes;
  operand->writable = (array->flags & kWritable) != 0;
  return 1;
}

static int read_array(Operand* operand, Layout* layout) {
  PyObject* capsule = PyObject_GetAttr(operand->object, array_struct_name);
  if (capsule == NULL) return 0;
  const ArrayStruct* array = PyCapsule_GetPointer(capsule, NULL);
  int read = array != NULL && read_array_struct(array, operand, layout);
  Py_DECREF(capsule);
  return read;
}

int read_operand(PyObject* object, const KnownType* type, Operand* operand, Layout* layout) {
  operand->object = object;
  operand->type = type;
  int read =
      type->kind == kTensor ? read_tensor(type, operand, layout) : read_array(operand, layout);
  if (!read && PyErr_Occurred()) PyErr_Clear(); /* the Python path raises the error */
  return read;
}
