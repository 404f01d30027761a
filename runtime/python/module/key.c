/* SPDX-License-Identifier: Apache-2.0
 * The words of a call: see key.h. Each argument is a head (slot, kind, length), then its value. */
#include "key.h"

#include <string.h>

typedef enum Tag { kNone, kFalse, kTrue, kInt, kFloat, kText, kTuple, kSame, kOperand } Tag;

enum { kLongestText = 160, kRoomOfOne = 2 + kLongestText / 8, kLongestTuple = 8 };
_Static_assert(kRoomOfOne >= 2 + 2 * kMaxRank, "a tensor has a head, a word and its layout");

static void add_word(Key* key, uint64_t word) { key->words[key->num_words++] = word; }

void key_begin(Key* key, const void* function) {
  key->num_words = key->num_operands = key->num_tensors = key->num_identities = 0;
  add_word(key, (uint64_t)(uintptr_t)function);
}

static void add_head(Key* key, int slot, Tag tag, uint64_t length) {
  add_word(key, (uint64_t)slot << 56 | (uint64_t)tag << 48 | length);
}

static int add_int(Key* key, int slot, PyObject* value) {
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow) return 0;
  add_head(key, slot, kInt, 0);
  add_word(key, (uint64_t)number);
  return 1;
}

static int add_float(Key* key, int slot, PyObject* value) {
  double number = PyFloat_AsDouble(value);
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  add_head(key, slot, kFloat, 0);
  add_word(key, bits);
  return 1;
}

static int add_text(Key* key, int slot, PyObject* value) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value, &length);
  if (text == NULL) PyErr_Clear();
  if (text == NULL || length > kLongestText) return 0;
  add_head(key, slot, kText, (uint64_t)length);
  for (Py_ssize_t at = 0; at < length; at += 8) {
    uint64_t word = 0;
    memcpy(&word, text + at, (size_t)(length - at < 8 ? length - at : 8));
    add_word(key, word);
  }
  return 1;
}

static int add_tuple(Key* key, int slot, PyObject* value) {
  Py_ssize_t length = PyTuple_Size(value);
  if (length > kLongestTuple) return 0;
  add_head(key, slot, kTuple, (uint64_t)length);
  for (Py_ssize_t i = 0; i < length; ++i) {
    PyObject* item = PyTuple_GetItem(value, i);
    if (Py_TYPE(item) == &PyTuple_Type || !key_add(key, slot, item)) return 0;
  }
  return 1;
}

static int add_operand(Key* key, int slot, PyObject* value, const KnownType* type) {
  if (key->num_operands == kMaxOperands) return 0;
  Operand* operand = &key->operands[key->num_operands];
  Layout layout;
  if (!read_operand(value, type, operand, &layout)) return 0;
  ++key->num_operands;
  key->num_tensors += type->kind == kTensor;
  add_head(key, slot, kOperand, (uint64_t)type->kind << 32 | (uint64_t)operand->rank);
  add_word(key, (uint64_t)operand->element << 40 ^ (uint64_t)operand->device_type << 32 ^
                    (uint64_t)(uint32_t)operand->device_id);
  for (int i = 0; i < operand->rank; ++i) {
    add_word(key, (uint64_t)layout.shape[i]);
    add_word(key, (uint64_t)layout.strides[i]);
  }
  return 1;
}

static int add_known(Key* key, int slot, PyObject* value) {
  const KnownType* type = known_type(value);
  if (type->kind == kTensor || type->kind == kArray) return add_operand(key, slot, value, type);
  if (type->kind != kIdentity || key->num_identities == kMaxIdentities) return 0;
  key->identities[key->num_identities++] = value;
  add_head(key, slot, kSame, 0);
  add_word(key, (uint64_t)(uintptr_t)value);
  return 1;
}

int key_add(Key* key, int slot, PyObject* value) {
  if (key->num_words + kRoomOfOne > kMaxWords) return 0;
  if (value == Py_None || value == Py_True || value == Py_False) {
    add_head(key, slot, value == Py_None ? kNone : value == Py_True ? kTrue : kFalse, 0);
    return 1;
  }
  PyTypeObject* type = Py_TYPE(value);
  if (type == &PyLong_Type) return add_int(key, slot, value);
  if (type == &PyFloat_Type) return add_float(key, slot, value);
  if (type == &PyUnicode_Type) return add_text(key, slot, value);
  if (type == &PyTuple_Type) return add_tuple(key, slot, value);
  return add_known(key, slot, value);
}

int key_is_special(const Key* key) {
  Recording recording = kNotAsked;
  for (int i = 0; i < key->num_operands; ++i)
    if (key->operands[i].type->kind == kTensor && is_special(&key->operands[i], &recording))
      return 1;
  return 0;
}

/* Combines each word by multiplication, and ends with splitmix64's finaliser. */
uint64_t key_hash(const Key* key) {
  uint64_t hash = 0x9E3779B97F4A7C15u ^ (uint64_t)key->num_words;
  for (int i = 0; i < key->num_words; ++i) {
    hash = (hash ^ key->words[i]) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 29;
  }
  hash = (hash ^ hash >> 30) * 0x94D049BB133111EBu;
  return hash ^ hash >> 31;
}
