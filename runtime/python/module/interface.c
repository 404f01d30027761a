/* SPDX-License-Identifier: Apache-2.0
 * Functions of attune.h for Python: see interface.h. */
#include "interface.h"

#include <string.h>

#include "library.h"
#include "structs.h"

/* Converts an address for PyArg_ParseTuple's O&. */
static int take_address(PyObject* object, void* address) {
  void* found = object == Py_None ? NULL : PyLong_AsVoidPtr(object);
  memcpy(address, &found, sizeof found);
  return found != NULL || !PyErr_Occurred();
}

static int take_bytes(PyObject* object, void* text) {
  const char* found = object == Py_None ? NULL : PyBytes_AsString(object);
  memcpy(text, &found, sizeof found);
  return found != NULL || !PyErr_Occurred();
}

static int take_problem(PyObject* object, void* problem) {
  const void* found = struct_data(object, &problem_struct);
  memcpy(problem, &found, sizeof found);
  return found != NULL;
}

static int take_operands(PyObject* object, void* operands) {
  const void* found = struct_data(object, &operands_struct);
  memcpy(operands, &found, sizeof found);
  return found != NULL;
}

static PyObject* none_if_ok(attune_status status) {
  if (check_status(status) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* text_of(const char* text) {
  return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* A statement without the GIL. */
#define WITHOUT_GIL(statement) \
  Py_BEGIN_ALLOW_THREADS;      \
  statement;                   \
  Py_END_ALLOW_THREADS

/* A function of one address that returns a text, or nothing. */
#define TEXT_OF(name)                                         \
  static PyObject* name(PyObject* module, PyObject* object) { \
    (void)module;                                             \
    void* address;                                            \
    if (!take_address(object, &address)) return NULL;         \
    return text_of(library.attune_##name(address));           \
  }
#define END_OF(name)                                          \
  static PyObject* name(PyObject* module, PyObject* object) { \
    (void)module;                                             \
    void* address;                                            \
    if (!take_address(object, &address)) return NULL;         \
    WITHOUT_GIL(library.attune_##name(address));              \
    Py_RETURN_NONE;                                           \
  }
TEXT_OF(context_device)
TEXT_OF(plan_explain)
TEXT_OF(program_nodes)
TEXT_OF(program_text)
END_OF(context_destroy)
END_OF(plan_release)

static PyObject* version(PyObject* module, PyObject* none) {
  return text_of(library.attune_version());
}

/* ---- Contexts ---- */

/* Returns the texts of a tuple of bytes, which the caller frees; NULL with an exception. */
static const char** texts_of(PyObject* tuple, size_t* count) {
  *count = (size_t)PyTuple_Size(tuple);
  const char** texts = PyMem_Calloc(*count + 1, sizeof *texts);
  if (texts == NULL) return (const char**)PyErr_NoMemory();
  for (size_t i = 0; i < *count; ++i)
    if ((texts[i] = PyBytes_AsString(PyTuple_GetItem(tuple, (Py_ssize_t)i))) == NULL) break;
  if (!PyErr_Occurred()) return texts;
  PyMem_Free(texts);
  return NULL;
}

static attune_memory_bundle* memory_bundles_of(PyObject* tuple, size_t* count) {
  *count = (size_t)PyTuple_Size(tuple);
  attune_memory_bundle* bundles = PyMem_Calloc(*count + 1, sizeof *bundles);
  if (bundles == NULL) return (attune_memory_bundle*)PyErr_NoMemory();
  for (size_t i = 0; i < *count; ++i) {
    PyObject* bytes = PyTuple_GetItem(tuple, (Py_ssize_t)i);
    bundles[i] = (attune_memory_bundle){PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes)};
  }
  return bundles;
}

static PyObject* context_create(PyObject* module, PyObject* arguments) {
  attune_context_options options;
  library.attune_context_options_init_sized(&options, sizeof options);
  PyObject *bundles, *memory, *folders;
  if (!PyArg_ParseTuple(arguments, "yO&O!O!iiO&O&O!:context_create", &options.target, take_bytes,
                        &options.store, &PyTuple_Type, &bundles, &PyTuple_Type, &memory,
                        &options.policy, &options.no_jit, take_bytes, &options.capture_file,
                        take_bytes, &options.pin, &PyTuple_Type, &folders))
    return NULL;
  attune_context* context = NULL;
  const char** paths = texts_of(bundles, &options.num_bundles);
  const char** of_nvrtc = texts_of(folders, &options.num_nvrtc_folders);
  attune_memory_bundle* in_memory = memory_bundles_of(memory, &options.num_memory_bundles);
  if (!PyErr_Occurred()) {
    options.bundles = paths;
    options.nvrtc_folders = of_nvrtc;
    options.memory_bundles = in_memory;
    attune_status status;
    WITHOUT_GIL(status = library.attune_context_create(&options, &context));
    check_status(status);
  }
  PyMem_Free(paths);
  PyMem_Free(of_nvrtc);
  PyMem_Free(in_memory);
  return PyErr_Occurred() ? NULL : PyLong_FromVoidPtr(context);
}

static PyObject* context_reload(PyObject* module, PyObject* object) {
  attune_context* context;
  attune_status status;
  if (!take_address(object, &context)) return NULL;
  WITHOUT_GIL(status = library.attune_context_reload(context));
  return none_if_ok(status);
}

static PyObject* context_pin_digest(PyObject* module, PyObject* object) {
  attune_context* context;
  attune_status status;
  uint8_t digest[32];
  if (!take_address(object, &context)) return NULL;
  WITHOUT_GIL(status = library.attune_context_pin_digest(context, digest));
  if (check_status(status) != 0) return NULL;
  return PyBytes_FromStringAndSize((const char*)digest, sizeof digest);
}

static PyObject* problem_check(PyObject* module, PyObject* arguments) {
  attune_context* context;
  const attune_problem* problem;
  char reasons[1 << 14] = "";
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "O&O&:problem_check", take_address, &context, take_problem,
                        &problem))
    return NULL;
  WITHOUT_GIL(status = library.attune_problem_check(context, problem, reasons, sizeof reasons));
  return check_status(status) == 0 ? text_of(reasons) : NULL;
}

/* ---- Plans and runs ---- */

static PyObject* plan_get(PyObject* module, PyObject* arguments) {
  attune_context* context;
  const attune_problem* problem;
  PyObject* layout;
  if (!PyArg_ParseTuple(arguments, "O&O&O:plan_get", take_address, &context, take_problem, &problem,
                        &layout))
    return NULL;
  const attune_operands* strides = NULL;
  if (layout != Py_None && !take_operands(layout, &strides)) return NULL;
  attune_plan* plan = NULL;
  attune_status status;
  WITHOUT_GIL(status = library.attune_plan_get(context, problem, strides, &plan));
  return check_status(status) == 0 ? PyLong_FromVoidPtr(plan) : NULL;
}

static PyObject* plan_info(PyObject* module, PyObject* object) {
  enum { kNotSet = -2 };
  attune_plan_info info = {.size = sizeof info, .device_ordinal = kNotSet};
  const attune_plan* plan;
  if (!take_address(object, &plan) || check_status(library.attune_plan_get_info(plan, &info)) != 0)
    return NULL;
  PyObject* ordinal =
      info.device_ordinal == kNotSet ? Py_BuildValue("") : PyLong_FromLong(info.device_ordinal);
  return Py_BuildValue("{si si ss ss ss sd sn sL sn sN}", "rung", info.rung, "registers",
                       info.registers, "kernel_template", info.kernel_template, "arch", info.arch,
                       "config", info.config, "expected_us", info.expected_us, "workspace_bytes",
                       (Py_ssize_t)info.workspace_bytes, "shared_bytes",
                       (long long)info.shared_bytes, "zeroed_bytes", (Py_ssize_t)info.zeroed_bytes,
                       "device_ordinal", ordinal);
}

static PyObject* workspace_init(PyObject* module, PyObject* arguments) {
  const attune_plan* plan;
  void *workspace, *stream;
  Py_ssize_t bytes;
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "O&O&nO&:workspace_init", take_address, &plan, take_address,
                        &workspace, &bytes, take_address, &stream))
    return NULL;
  WITHOUT_GIL(status = library.attune_workspace_init(plan, workspace, (size_t)bytes, stream));
  return none_if_ok(status);
}

typedef struct Run {
  int ordinal;
  const void* plan;
  const void* operands;
  void* workspace;
  Py_ssize_t workspace_bytes;
  void* stream;
} Run;

/* Reads the arguments of run(), and the one behind them if `more` is not NULL. */
static int take_run(PyObject* arguments, Run* run, PyObject** more) {
  return PyArg_ParseTuple(arguments, more ? "iO&O&O&nO&O:launcher" : "iO&O&O&nO&:run",
                          &run->ordinal, take_address, &run->plan, take_operands, &run->operands,
                          take_address, &run->workspace, &run->workspace_bytes, take_address,
                          &run->stream, more);
}

static PyObject* start(const Run* run) {
  if (run_plan(run->ordinal, run->plan, run->operands, run->workspace, (size_t)run->workspace_bytes,
               run->stream) != 0)
    return NULL;
  Py_RETURN_NONE;
}

static PyObject* run(PyObject* module, PyObject* arguments) {
  Run once;
  return take_run(arguments, &once, NULL) ? start(&once) : NULL;
}

typedef struct Launcher {
  PyObject_HEAD Run run;
  PyObject* kept; /* the arguments of launcher() */
} Launcher;

static PyObject* launcher_type;

static PyObject* launch(PyObject* self, PyObject* none) {
  return start(&((const Launcher*)self)->run);
}

static void launcher_dealloc(PyObject* self) {
  Py_XDECREF(((Launcher*)self)->kept);
  free_object(self);
}

PyObject* make_launcher_type(void) {
  static PyType_Slot slots[] = {{Py_tp_dealloc, launcher_dealloc}, {0, NULL}};
  static PyType_Spec spec = {"attune._attune.Launcher", sizeof(Launcher), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  launcher_type = PyType_FromSpec(&spec);
  return launcher_type;
}

static PyObject* launcher(PyObject* module, PyObject* arguments) {
  static PyMethodDef definition = {"launch", launch, METH_NOARGS, "Repeats its run."};
  Run repeated;
  PyObject* keep;
  if (!take_run(arguments, &repeated, &keep)) return NULL;
  Launcher* made = (Launcher*)allocate_object(launcher_type);
  if (made == NULL) return NULL;
  made->run = repeated;
  Py_INCREF(arguments);
  made->kept = arguments;
  PyObject* function = PyCFunction_NewEx(&definition, (PyObject*)made, NULL);
  Py_DECREF((PyObject*)made);
  return function;
}

/* ---- Programs, maps of blocks, dropout, groups, rotary tables ---- */

static PyObject* program_parse(PyObject* module, PyObject* arguments) {
  attune_program_desc desc = {.size = sizeof desc};
  const attune_program* program = NULL;
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "iyy:program_parse", &desc.kind, &desc.text, &desc.name))
    return NULL;
  WITHOUT_GIL(status = library.attune_program_parse(&desc, &program, NULL, 0));
  return check_status(status) == 0 ? PyLong_FromVoidPtr((void*)(uintptr_t)program) : NULL;
}

static PyObject* block_map_layout(PyObject* module, PyObject* object) {
  const attune_problem* problem;
  PyObject* map = take_problem(object, &problem) ? make_struct(&block_map_struct) : NULL;
  if (map == NULL) return NULL;
  attune_block_map* layout = struct_data(map, &block_map_struct);
  if (check_status(library.attune_block_map_init_sized(problem, layout, sizeof *layout)) != 0)
    Py_CLEAR(map);
  return map;
}

static PyObject* block_map_build(PyObject* module, PyObject* arguments) {
  attune_context* context;
  const attune_problem* problem;
  PyObject *scores, *map;
  void* stream;
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "O&O&OOO&:block_map_build", take_address, &context, take_problem,
                        &problem, &scores, &map, take_address, &stream))
    return NULL;
  const attune_score_operands* given = struct_data(scores, &score_operands_struct);
  const attune_block_map* built = given ? struct_data(map, &block_map_struct) : NULL;
  if (built == NULL) return NULL;
  WITHOUT_GIL(status = library.attune_block_map_build(context, problem, given, built, stream));
  return none_if_ok(status);
}

static PyObject* dropout_rate(PyObject* module, PyObject* rate) {
  double number = PyFloat_AsDouble(rate);
  if (PyErr_Occurred()) return NULL;
  return PyFloat_FromDouble(library.attune_dropout_rate((float)number));
}

static PyObject* dropout_mask(PyObject* module, PyObject* arguments) {
  float rate;
  unsigned long long seed, offset;
  long long batch, heads, rows, keys;
  uint8_t* keep;
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "fKK(LLLL)O&:dropout_mask", &rate, &seed, &offset, &batch,
                        &heads, &rows, &keys, take_address, &keep))
    return NULL;
  WITHOUT_GIL(status =
                  library.attune_dropout_mask(rate, seed, offset, batch, heads, rows, keys, keep));
  return none_if_ok(status);
}

static PyObject* group_schedule(PyObject* module, PyObject* arguments) {
  const attune_problem* problem;
  const char* request;
  size_t bytes = 0;
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "O&y:group_schedule", take_problem, &problem, &request))
    return NULL;
  WITHOUT_GIL(status = library.attune_group_schedule(problem, request, NULL, 0, &bytes));
  if (check_status(status) != 0) return NULL;
  char* text = PyMem_Malloc(bytes);
  if (text == NULL) return PyErr_NoMemory();
  WITHOUT_GIL(status = library.attune_group_schedule(problem, request, text, bytes, NULL));
  PyObject* made = check_status(status) == 0 ? text_of(text) : NULL;
  PyMem_Free(text);
  return made;
}

static PyObject* rotary(PyObject* module, PyObject* none) {
  PyObject* made = make_struct(&rotary_struct);
  attune_rotary* defaults = made ? struct_data(made, &rotary_struct) : NULL;
  if (defaults != NULL) library.attune_rotary_init_sized(defaults, sizeof *defaults);
  return made;
}

static PyObject* rotary_table(PyObject* module, PyObject* arguments) {
  PyObject* object;
  long long first_position, count;
  float *cos, *sin;
  attune_status status;
  if (!PyArg_ParseTuple(arguments, "OLLO&O&:rotary_table", &object, &first_position, &count,
                        take_address, &cos, take_address, &sin))
    return NULL;
  const attune_rotary* asked = struct_data(object, &rotary_struct);
  if (asked == NULL) return NULL;
  WITHOUT_GIL(status = library.attune_rotary_table(asked, first_position, count, cos, sin));
  return none_if_ok(status);
}

#define METHOD(kind, name) \
  { #name, name, METH_##kind, "See interface.h." }

/* clang-format off */
PyMethodDef interface_methods[] = {
    METHOD(NOARGS, rotary), METHOD(O, block_map_layout), METHOD(O, context_destroy),
    METHOD(O, context_device), METHOD(O, context_pin_digest), METHOD(O, context_reload),
    METHOD(O, dropout_rate), METHOD(O, plan_explain), METHOD(O, plan_info), METHOD(O, plan_release),
    METHOD(O, program_nodes), METHOD(O, program_text), METHOD(VARARGS, block_map_build),
    METHOD(VARARGS, context_create), METHOD(VARARGS, dropout_mask), METHOD(VARARGS, launcher),
    METHOD(VARARGS, group_schedule), METHOD(VARARGS, plan_get), METHOD(VARARGS, problem_check),
    METHOD(VARARGS, program_parse), METHOD(VARARGS, rotary_table), METHOD(VARARGS, run),
    METHOD(VARARGS, workspace_init), METHOD(NOARGS, version),
    {NULL, NULL, 0, NULL}};
/* clang-format on */
