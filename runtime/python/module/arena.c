/* SPDX-License-Identifier: Apache-2.0
 * Workspaces by stream and by thread: see arena.h. */
#include "arena.h"

#include <sys/mman.h>

typedef struct StreamArena {
  int ordinal;
  void* stream;
  Arena* arena;
} StreamArena;

static StreamArena* of_streams; /* the one used last is the first */
static int num_streams;
static PyObject* arena_type;
static PyObject* thread_key;

static PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(Arena, address), 0, "address of its first byte"},
    {"size", T_ULONGLONG, offsetof(Arena, size), 0, "bytes"},
    {"zero_bytes", T_ULONGLONG, offsetof(Arena, zero_bytes), 0, "first bytes that are zero now"},
    {"busy", T_INT, offsetof(Arena, busy), 0, "Python prepares a run"},
    {NULL, 0, 0, 0, NULL}};

static void unmap(Arena* arena) {
  if (arena->mapped != NULL) munmap(arena->mapped, arena->mapped_bytes);
  arena->mapped = NULL;
}

/* Private, because a forked child must not write into its parent's. Pages take memory when they are
 * first touched. */
static PyObject* map(PyObject* self, PyObject* size) {
  Arena* arena = (Arena*)self;
  size_t bytes = PyLong_AsSize_t(size);
  if (PyErr_Occurred()) return NULL;
  unmap(arena);
  void* mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return PyErr_NoMemory();
  arena->mapped = mapped;
  arena->mapped_bytes = bytes;
  arena->address = (unsigned long long)(uintptr_t)mapped;
  Py_RETURN_NONE;
}

static void dealloc(PyObject* self) {
  unmap((Arena*)self);
  free_object(self);
}

PyObject* make_arena_type(void) {
  static PyMethodDef methods[] = {
      {"map", map, METH_O, "Sets the address to that of `size` new bytes of the host, of zeros."},
      {NULL, NULL, 0, NULL}};
  static PyType_Slot slots[] = {{Py_tp_members, members},
                                {Py_tp_methods, methods},
                                {Py_tp_dealloc, dealloc},
                                {Py_tp_doc, "The state of a workspace that a run needs."},
                                {0, NULL}};
  static PyType_Spec spec = {"attune._attune.Arena", sizeof(Arena), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  if (thread_key == NULL) thread_key = PyUnicode_InternFromString("attune workspace");
  if (thread_key == NULL) return NULL;
  arena_type = PyType_FromSpec(&spec);
  return arena_type;
}

static int add_of_stream(int ordinal, void* stream, PyObject* arena) {
  for (int i = 0; i < num_streams; ++i)
    if (of_streams[i].ordinal == ordinal && of_streams[i].stream == stream) {
      PyObject* old = (PyObject*)of_streams[i].arena;
      Py_INCREF(arena);
      of_streams[i].arena = (Arena*)arena;
      Py_DECREF(old);
      return 0;
    }
  StreamArena* grown = PyMem_Realloc(of_streams, sizeof *grown * (size_t)(num_streams + 1));
  if (grown == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  Py_INCREF(arena);
  of_streams = grown;
  of_streams[num_streams++] = (StreamArena){ordinal, stream, (Arena*)arena};
  return 0;
}

PyObject* add_arena(PyObject* module, PyObject* arguments) {
  int ordinal;
  unsigned long long stream;
  PyObject* arena;
  if (!PyArg_ParseTuple(arguments, "iKO:add_arena", &ordinal, &stream, &arena)) return NULL;
  if (!PyType_IsSubtype(Py_TYPE(arena), (PyTypeObject*)arena_type)) {
    PyErr_SetString(PyExc_TypeError, "arena is not an Arena");
    return NULL;
  }
  if (ordinal >= 0) {
    if (add_of_stream(ordinal, (void*)(uintptr_t)stream, arena) != 0) return NULL;
  } else {
    PyObject* of_thread = PyThreadState_GetDict();
    if (of_thread != NULL && PyDict_SetItem(of_thread, thread_key, arena) != 0) return NULL;
  }
  Py_RETURN_NONE;
}

static Arena* of_stream(int ordinal, void* stream) {
  for (int i = 0; i < num_streams; ++i)
    if (of_streams[i].ordinal == ordinal && of_streams[i].stream == stream) {
      StreamArena found = of_streams[i];
      of_streams[i] = of_streams[0];
      of_streams[0] = found;
      return found.arena;
    }
  return NULL;
}

/* Returns where a run begins. Runs that need no zeroed bytes begin after the zeroed bytes, which
 * stay zero for others. */
static size_t offset_of(const Arena* arena, size_t zeroed_bytes) {
  enum { kStep = 256 };
  return zeroed_bytes > 0 ? 0 : (size_t)(arena->zero_bytes + kStep - 1) / kStep * kStep;
}

Arena* ready_arena(int ordinal, void* stream, size_t workspace_bytes, size_t zeroed_bytes,
                   void** address) {
  Arena* arena = NULL;
  if (ordinal >= 0) {
    arena = of_stream(ordinal, stream);
  } else {
    PyObject* of_thread = PyThreadState_GetDict();
    arena = of_thread ? (Arena*)PyDict_GetItemWithError(of_thread, thread_key) : NULL;
  }
  if (arena == NULL || arena->busy || arena->zero_bytes < zeroed_bytes) return NULL;
  size_t offset = offset_of(arena, zeroed_bytes);
  if (arena->size < offset + workspace_bytes) return NULL;
  if (zeroed_bytes > 0 && workspace_bytes > zeroed_bytes) arena->zero_bytes = zeroed_bytes;
  *address = (void*)(uintptr_t)(arena->address + offset);
  return arena;
}
