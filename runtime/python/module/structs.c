/* SPDX-License-Identifier: Apache-2.0
 * Structs of attune.h for Python: see structs.h. */
#include "structs.h"

#include <stddef.h>
#include <string.h>

typedef struct Struct {
  PyObject_HEAD const StructType* of;
  unsigned char* data;
  PyObject* owner;   /* of a view's bytes; NULL if they follow this object */
  PyObject* targets; /* a dict by field of the objects that it points to, or NULL */
  PyObject* kept;    /* set by Python */
} Struct;

enum { kMaxTypes = 16 };
static const StructType* types[kMaxTypes];
static int num_types;

static Struct* allocate(const StructType* of) {
  Struct* made = (Struct*)allocate_object(of->type);
  if (made == NULL) return NULL;
  made->of = of;
  made->data = (unsigned char*)(made + 1);
  return made;
}

PyObject* make_struct(const StructType* of) {
  Struct* made = allocate(of);
  if (made != NULL && of->has_size) memcpy(made->data, &of->bytes, sizeof of->bytes);
  return (PyObject*)made;
}

static PyObject* view_of(PyObject* owner, unsigned char* data, const StructType* of) {
  Struct* view = allocate(of);
  if (view == NULL) return NULL;
  Py_INCREF(owner);
  view->owner = owner;
  view->data = data;
  return (PyObject*)view;
}

void* struct_data(PyObject* object, const StructType* of) {
  if (Py_TYPE(object) == of->type) return ((Struct*)object)->data;
  PyErr_Format(PyExc_TypeError, "an argument is %R; must be of type %s", object, of->name);
  return NULL;
}

static PyObject* get_field(PyObject* object, void* closure) {
  const Field* field = closure;
  const Struct* self = (const Struct*)object;
  unsigned char* at = self->data + field->offset;
  PyObject* found = NULL;
  switch (field->kind) {
    case kInt32:
      return PyLong_FromLong(*(int32_t*)at);
    case kInt64:
      return PyLong_FromLongLong(*(int64_t*)at);
    case kUint64:
      return PyLong_FromUnsignedLongLong(*(uint64_t*)at);
    case kFloat:
      return PyFloat_FromDouble((double)*(float*)at);
    case kInner:
      return view_of(object, at, field->of);
    case kAddress:
      if (*(void**)at != NULL) return PyLong_FromVoidPtr(*(void**)at);
      break;
    case kBuffer:
    case kPointer:
      if (self->targets != NULL) found = PyDict_GetItemString(self->targets, field->name);
  }
  if (found == NULL) found = Py_None;
  Py_INCREF(found);
  return found;
}

static int set_int(const Field* field, void* at, PyObject* value) {
  int overflow = 0;
  int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (number == -1 && PyErr_Occurred()) return -1;
  if (overflow || (field->kind == kInt32 && number != (int32_t)number)) {
    PyErr_Format(PyExc_ValueError, "%s is %S; must be an int of %d bits", field->name, value,
                 field->kind == kInt32 ? 32 : 64);
    return -1;
  }
  memcpy(at, &number, field->kind == kInt32 ? 4 : 8); /* of a little-endian machine */
  return 0;
}

static int set_target(Struct* self, const Field* field, void* at, PyObject* value) {
  const void* address = NULL;
  if (value != Py_None) {
    address = field->kind == kBuffer ? PyBytes_AsString(value) : struct_data(value, field->of);
    if (address == NULL) return -1;
  }
  if (self->targets == NULL) self->targets = PyDict_New();
  if (self->targets == NULL || PyDict_SetItemString(self->targets, field->name, value) != 0)
    return -1;
  memcpy(at, &address, sizeof address);
  return 0;
}

static int set_field(PyObject* object, PyObject* value, void* closure) {
  const Field* field = closure;
  unsigned char* at = ((Struct*)object)->data + field->offset;
  const void* inner;
  if (value == NULL) {
    PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", field->name);
    return -1;
  }
  switch (field->kind) {
    case kInt32:
    case kInt64:
      return set_int(field, at, value);
    case kBuffer:
    case kPointer:
      return set_target((Struct*)object, field, at, value);
    case kInner:
      inner = struct_data(value, field->of);
      if (inner != NULL) memcpy(at, inner, field->of->bytes);
      break;
    case kAddress:
      *(void**)at = value == Py_None ? NULL : PyLong_AsVoidPtr(value);
      break;
    case kUint64:
      *(uint64_t*)at = PyLong_AsUnsignedLongLongMask(value);
      break;
    case kFloat:
      *(float*)at = (float)PyFloat_AsDouble(value);
      break;
  }
  return PyErr_Occurred() ? -1 : 0;
}

int struct_set(PyObject* object, const StructType* of, const char* name, PyObject* value) {
  for (const Field* field = of->fields; field->name != NULL; ++field)
    if (strcmp(field->name, name) == 0) return set_field(object, value, (void*)(uintptr_t)field);
  PyErr_Format(PyExc_AttributeError, "%s has no field %s", of->name, name);
  return -1;
}

static PyObject* struct_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  int number = 0;
  while (types[number]->type != type) ++number;
  PyObject *made = make_struct(types[number]), *name, *value;
  const Field* field = types[number]->fields;
  Py_ssize_t at = 0;
  int failed = made == NULL;
  for (Py_ssize_t i = 0; !failed && i < PyTuple_Size(arguments); ++i, ++field) {
    if (field->name == NULL) PyErr_SetString(PyExc_TypeError, "a struct has fewer fields");
    failed = field->name == NULL ||
             set_field(made, PyTuple_GetItem(arguments, i), (void*)(uintptr_t)field) != 0;
  }
  while (!failed && keywords != NULL && PyDict_Next(keywords, &at, &name, &value))
    failed = PyObject_SetAttr(made, name, value) != 0;
  if (failed) Py_CLEAR(made);
  return made;
}

static void struct_dealloc(PyObject* object) {
  Struct* self = (Struct*)object;
  Py_XDECREF(self->owner);
  Py_XDECREF(self->targets);
  Py_XDECREF(self->kept);
  free_object(object);
}

static PyObject* struct_copy(PyObject* object, PyObject* none) {
  const Struct* self = (const Struct*)object;
  Struct* made = allocate(self->of);
  if (made == NULL) return NULL;
  memcpy(made->data, self->data, self->of->bytes);
  if (self->targets != NULL) made->targets = PyDict_Copy(self->targets);
  if (PyErr_Occurred()) Py_CLEAR(made);
  return (PyObject*)made;
}

static PyObject* struct_bytes(PyObject* object, PyObject* none) {
  const Struct* self = (const Struct*)object;
  return PyBytes_FromStringAndSize((const char*)self->data, (Py_ssize_t)self->of->bytes);
}

static PyObject* struct_address(PyObject* object, void* closure) {
  return PyLong_FromVoidPtr(((Struct*)object)->data);
}

/* Returns the Python type, whose descriptors live as long as the process. Adds each field's offset
 * to the dict. */
static PyObject* make_type(const StructType* of, PyObject* offsets) {
  static PyMemberDef members[] = {
      {"kept", T_OBJECT, offsetof(Struct, kept), 0, "An object that lives as long as the struct."},
      {NULL, 0, 0, 0, NULL}};
  static PyMethodDef methods[] = {
      {"copy", struct_copy, METH_NOARGS, "Returns a struct with the same fields."},
      {"__bytes__", struct_bytes, METH_NOARGS, "Returns its bytes."},
      {NULL, NULL, 0, NULL}};
  enum { kMaxFields = 64 };
  PyGetSetDef* descriptors = PyMem_Calloc(kMaxFields + 2, sizeof *descriptors);
  if (descriptors == NULL) return PyErr_NoMemory();
  int count = 0;
  for (const Field* field = of->fields; field->name != NULL && count < kMaxFields; ++field) {
    descriptors[count++] = (PyGetSetDef){field->name, get_field, of->read_only ? NULL : set_field,
                                         NULL, (void*)(uintptr_t)field};
    PyObject* offset = PyLong_FromSize_t(field->offset);
    if (offset == NULL || PyDict_SetItemString(offsets, field->name, offset) != 0) return NULL;
    Py_DECREF(offset);
  }
  descriptors[count] = (PyGetSetDef){"address", struct_address, NULL, "Of its first byte.", NULL};
  char name[64];
  PyOS_snprintf(name, sizeof name, "attune._attune.%s", of->name);
  PyType_Slot slots[] = {{Py_tp_new, struct_new},     {Py_tp_dealloc, struct_dealloc},
                         {Py_tp_members, members},    {Py_tp_methods, methods},
                         {Py_tp_getset, descriptors}, {0, NULL}};
  PyType_Spec spec = {name, (int)(sizeof(Struct) + of->bytes), 0, Py_TPFLAGS_DEFAULT, slots};
  return PyType_FromSpec(&spec);
}

int add_struct(PyObject* module, StructType* of) {
  if (of->type != NULL) /* the module started before in this process */
    return PyModule_AddObjectRef(module, of->name, (PyObject*)of->type);
  if (num_types == kMaxTypes) {
    PyErr_SetString(PyExc_SystemError, "structs.c has no room for another type");
    return -1;
  }
  PyObject *offsets = PyDict_New(), *bytes = PyLong_FromSize_t(of->bytes);
  PyObject* type = offsets && bytes ? make_type(of, offsets) : NULL;
  of->type = (PyTypeObject*)type; /* keeps the reference */
  if (type != NULL) types[num_types++] = of;
  int failed = type == NULL || PyObject_SetAttrString(type, "offsets", offsets) != 0 ||
               PyObject_SetAttrString(type, "num_bytes", bytes) != 0 ||
               PyModule_AddObjectRef(module, of->name, type) != 0;
  Py_XDECREF(offsets);
  Py_XDECREF(bytes);
  return failed ? -1 : 0;
}
