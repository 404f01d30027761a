/* SPDX-License-Identifier: Apache-2.0
 * Making and running entries: see entry.h. */
#include "entry.h"

#include <stddef.h>
#include <string.h>

#include "arena.h"
#include "library.h"

enum {
  kMaxBlob = 4096,
  kMaxPlaces = 2,
  kMaxPointers = 16,
  kMaxFresh = 3, /* dq, dk and dv */
  kMaxMakers = 2,
  kMaxResults = 3,
  kAlignment = 16
};

typedef struct Place { /* where the address of an operand is written */
  int operand;
  int count;
  int at[kMaxPlaces];
  int flags;
  uintptr_t span;
  uintptr_t first; /* its address in the call that Python checked */
} Place;

typedef struct Maker {
  PyObject* make;
  PyObject* arguments;
} Maker;

typedef struct Fresh {
  Maker makers[kMaxMakers];
  int num_makers;
  int maker; /* the one whose result was used last */
  int count;
  int at[kMaxPlaces];
  int rank;
} Fresh;

struct Entry {
  int references;
  uint64_t hash;
  uint64_t used;
  Guards guards;
  int num_words;
  uint64_t* words;
  PyObject* identities; /* a tuple */
  PyObject* recipe;     /* owns everything that the fields below point to */
  const void* plan;
  int ordinal;
  size_t workspace_bytes;
  size_t zeroed_bytes;
  long long stream;
  const char* blob;
  size_t blob_bytes;
  int num_pointers;
  int pointers[kMaxPointers][2];
  int num_places;
  Place places[kMaxOperands];
  int num_fresh;
  Fresh fresh[kMaxFresh];
  int num_results;
  int results[kMaxResults];
};

static int refuse(const char* what) {
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_ValueError, "the recipe of a call is malformed: %s", what);
  return -1;
}

/* Reads offsets in the blob, and checks that an address fits at each. */
static int take_offsets(const Entry* entry, PyObject* tuple, int* count, int* at) {
  Py_ssize_t length = PyTuple_Size(tuple);
  if (length < 0 || length > kMaxPlaces) return refuse("an address has too many places");
  for (*count = 0; *count < length; ++*count) {
    long offset = PyLong_AsLong(PyTuple_GetItem(tuple, *count));
    if (offset < 0 || (size_t)offset + sizeof(void*) > entry->blob_bytes)
      return refuse("a place is outside of the blob");
    at[*count] = (int)offset;
  }
  return 0;
}

static int take_pointers(Entry* entry, PyObject* pointers) {
  Py_ssize_t length = PyTuple_Size(pointers);
  if (length < 0 || length > kMaxPointers) return refuse("it has too many pointers");
  for (; entry->num_pointers < length; ++entry->num_pointers) {
    int count = 0;
    PyObject* pair = PyTuple_GetItem(pointers, entry->num_pointers);
    if (take_offsets(entry, pair, &count, entry->pointers[entry->num_pointers]) != 0) return -1;
    if (count != 2) return refuse("a pointer is not a pair");
  }
  return 0;
}

static int take_places(Entry* entry, PyObject* operands, const Key* key) {
  Py_ssize_t length = PyTuple_Size(operands);
  if (length < 0 || length > kMaxOperands) return refuse("it has too many operands");
  for (; entry->num_places < length; ++entry->num_places) {
    Place* place = &entry->places[entry->num_places];
    PyObject* offsets;
    unsigned long long span;
    if (!PyArg_ParseTuple(PyTuple_GetItem(operands, entry->num_places), "iO!Ki", &place->operand,
                          &PyTuple_Type, &offsets, &span, &place->flags))
      return -1;
    place->span = (uintptr_t)span;
    if (place->operand < 0 || place->operand >= key->num_operands)
      return refuse("it names an operand that the call does not have");
    place->first = (uintptr_t)key->operands[place->operand].data;
    if (take_offsets(entry, offsets, &place->count, place->at) != 0) return -1;
  }
  return 0;
}

static int take_makers(Fresh* fresh, PyObject* makers) {
  Py_ssize_t length = PyTuple_Size(makers);
  if (length < 1 || length > kMaxMakers) return refuse("a new tensor must have 1 or 2 makers");
  for (; fresh->num_makers < length; ++fresh->num_makers) {
    Maker* maker = &fresh->makers[fresh->num_makers];
    if (!PyArg_ParseTuple(PyTuple_GetItem(makers, fresh->num_makers), "OO!", &maker->make,
                          &PyTuple_Type, &maker->arguments))
      return -1;
  }
  return 0;
}

static int take_fresh(Entry* entry, PyObject* fresh) {
  Py_ssize_t length = PyTuple_Size(fresh);
  if (length < 0 || length > kMaxFresh) return refuse("it has too many new tensors");
  for (; entry->num_fresh < length; ++entry->num_fresh) {
    Fresh* made = &entry->fresh[entry->num_fresh];
    PyObject *makers, *offsets;
    if (!PyArg_ParseTuple(PyTuple_GetItem(fresh, entry->num_fresh), "O!O!i", &PyTuple_Type, &makers,
                          &PyTuple_Type, &offsets, &made->rank))
      return -1;
    if (take_makers(made, makers) != 0 || take_offsets(entry, offsets, &made->count, made->at) != 0)
      return -1;
  }
  return 0;
}

static int take_results(Entry* entry, PyObject* results, int num_operands) {
  Py_ssize_t length = PyTuple_Size(results);
  if (length < 0 || length > kMaxResults) return refuse("it has too many results");
  for (; entry->num_results < length; ++entry->num_results) {
    long number = PyLong_AsLong(PyTuple_GetItem(results, entry->num_results));
    if (number >= num_operands || number < -entry->num_fresh)
      return refuse("a result is neither an operand nor a new tensor");
    entry->results[entry->num_results] = (int)number;
  }
  return 0;
}

static int take_recipe(Entry* entry, const Key* key, PyObject* recipe) {
  PyObject *keep, *pointers, *operands, *fresh, *results;
  unsigned long long handle;
  Py_ssize_t workspace_bytes, zeroed_bytes, blob_bytes;
  if (!PyArg_ParseTuple(recipe, "OKinnLy#O!O!O!O!", &keep, &handle, &entry->ordinal,
                        &workspace_bytes, &zeroed_bytes, &entry->stream, &entry->blob, &blob_bytes,
                        &PyTuple_Type, &pointers, &PyTuple_Type, &operands, &PyTuple_Type, &fresh,
                        &PyTuple_Type, &results))
    return -1;
  if (blob_bytes > kMaxBlob) return refuse("its blob is too large");
  entry->plan = (const void*)(uintptr_t)handle;
  entry->workspace_bytes = (size_t)workspace_bytes;
  entry->zeroed_bytes = (size_t)zeroed_bytes;
  entry->blob_bytes = (size_t)blob_bytes;
  if (take_pointers(entry, pointers) != 0 || take_places(entry, operands, key) != 0 ||
      take_fresh(entry, fresh) != 0)
    return -1;
  return take_results(entry, results, key->num_operands);
}

static int take_key(Entry* entry, const Key* key) {
  entry->hash = key_hash(key);
  entry->num_words = key->num_words;
  entry->words = PyMem_Malloc(sizeof *entry->words * (size_t)(key->num_words + 1));
  if (entry->words == NULL) {
    PyErr_NoMemory();
    return -1;
  }
  memcpy(entry->words, key->words, sizeof *entry->words * (size_t)key->num_words);
  entry->identities = PyTuple_New(key->num_identities);
  if (entry->identities == NULL) return -1;
  for (int i = 0; i < key->num_identities; ++i) {
    Py_INCREF(key->identities[i]);
    if (PyTuple_SetItem(entry->identities, i, key->identities[i]) != 0) return -1;
  }
  return 0;
}

Entry* entry_make(const Key* key, Guard guard, PyObject* recipe) {
  if (!PyTuple_Check(recipe)) {
    refuse("it must be a tuple");
    return NULL;
  }
  Entry* entry = PyMem_Calloc(1, sizeof *entry);
  if (entry == NULL) return (Entry*)PyErr_NoMemory();
  entry->references = 1;
  Py_INCREF(recipe);
  entry->recipe = recipe;
  guards_add(&entry->guards, guard);
  if (take_key(entry, key) == 0 && take_recipe(entry, key, recipe) == 0) return entry;
  entry_release(entry);
  return NULL;
}

void entry_hold(Entry* entry) { ++entry->references; }

void entry_release(Entry* entry) {
  if (--entry->references > 0) return;
  PyObject *recipe = entry->recipe, *identities = entry->identities;
  Guards guards = entry->guards;
  PyMem_Free(entry->words);
  PyMem_Free(entry);
  guards_clear(&guards);
  Py_XDECREF(identities);
  Py_XDECREF(recipe);
}

int entry_matches(const Entry* entry, uint64_t hash, const Key* key) {
  return entry->hash == hash && entry->num_words == key->num_words &&
         memcmp(entry->words, key->words, sizeof *key->words * (size_t)key->num_words) == 0;
}

uint64_t entry_hash(const Entry* entry) { return entry->hash; }

uint64_t* entry_used(Entry* entry) { return &entry->used; }

Guards* entry_guards(Entry* entry) { return &entry->guards; }

int entry_trusts(Entry* entry, const Key* key) {
  if (key->num_tensors == 0) return 1;
  return guard_maker() != NULL ? guards_pass(&entry->guards, key) : !key_is_special(key);
}

static int share_memory(const Place* a, const Operand* x, const Place* b, const Operand* y) {
  if (a->span == 0 || b->span == 0) return 0;
  uintptr_t from_x = (uintptr_t)x->data, from_y = (uintptr_t)y->data;
  return from_x < from_y + b->span && from_y < from_x + a->span;
}

/* True if no other guarded or written operand overlaps the memory of `place`, which is written. */
static int stands_apart(const Entry* entry, const Key* key, int place) {
  const Place* written = &entry->places[place];
  const Operand* memory = &key->operands[written->operand];
  for (int i = 0; i < entry->num_places; ++i) {
    const Place* other = &entry->places[i];
    const Operand* others = &key->operands[other->operand];
    if (i == place || !(other->flags & (kGuarded | kWritten))) continue;
    if ((other->flags & written->flags & kInPlace) && memory->data == others->data) continue;
    if ((uintptr_t)memory->data - (uintptr_t)others->data == written->first - other->first)
      continue; /* same distance and layouts as in the call that Python checked */
    if (share_memory(written, memory, other, others)) return 0;
  }
  return 1;
}

static int stands_as_told(const Entry* entry, const Key* key, int place) {
  if (place == 0) return 0;
  const Place* own = &entry->places[place];
  const void* prior = key->operands[entry->places[place - 1].operand].data;
  int with_prior = key->operands[own->operand].data == prior;
  return with_prior == ((own->flags & kWithPrior) != 0);
}

static int addresses_fit(const Entry* entry, const Key* key) {
  for (int i = 0; i < entry->num_places; ++i) {
    const Operand* operand = &key->operands[entry->places[i].operand];
    int flags = entry->places[i].flags;
    if ((flags & kAligned) && (uintptr_t)operand->data % kAlignment != 0) return 0;
    if ((flags & (kWithPrior | kNotWithPrior)) && !stands_as_told(entry, key, i)) return 0;
    if ((flags & kWritten) && (!operand->writable || !stands_apart(entry, key, i))) return 0;
  }
  return 1;
}

static void put(unsigned char* blob, const int* at, int count, const void* address) {
  for (int i = 0; i < count; ++i) memcpy(blob + at[i], &address, sizeof address);
}

static int is_beside(const Operand* made, int rank, const Operand* first) {
  return made->rank == rank && made->device_type == first->device_type &&
         made->device_id == first->device_id && (uintptr_t)made->data % kAlignment == 0;
}

/* Returns a new reference, or NULL: an exception is set, or no maker makes a tensor of the kind and
 * device of `first`, for instance under a mode of PyTorch. */
static PyObject* make_one(Fresh* fresh, const Operand* first, Operand* operand) {
  for (int turn = 0; turn < fresh->num_makers; ++turn) {
    int number = (fresh->maker + turn) % fresh->num_makers;
    const Maker* maker = &fresh->makers[number];
    PyObject* made = PyObject_Call(maker->make, maker->arguments, NULL);
    if (made == NULL) return NULL;
    Layout layout;
    const KnownType* type = known_type(made);
    if (type->kind == first->type->kind && read_operand(made, type, operand, &layout) &&
        is_beside(operand, fresh->rank, first)) {
      fresh->maker = number;
      return made;
    }
    Py_DECREF(made);
  }
  return NULL;
}

/* Makes all new tensors. 1: made. 0: no maker makes a fitting one. -1: an exception is set. */
static int make_fresh(Entry* entry, const Key* key, PyObject** made, unsigned char* blob) {
  for (int i = 0; i < entry->num_fresh; ++i) {
    Fresh* fresh = &entry->fresh[i];
    Operand operand;
    made[i] = make_one(fresh, &key->operands[0], &operand);
    if (made[i] == NULL) return PyErr_Occurred() ? -1 : 0;
    put(blob, fresh->at, fresh->count, operand.data);
  }
  return 1;
}

static PyObject* result_of(const Entry* entry, const Key* key, PyObject* const* made, int i) {
  int number = entry->results[i];
  PyObject* found = number >= 0 ? key->operands[number].object : made[-1 - number];
  Py_INCREF(found);
  return found;
}

static PyObject* results_of(const Entry* entry, const Key* key, PyObject* const* made) {
  if (entry->num_results == 0) Py_RETURN_NONE;
  if (entry->num_results == 1) return result_of(entry, key, made, 0);
  PyObject* tuple = PyTuple_New(entry->num_results);
  for (int i = 0; tuple != NULL && i < entry->num_results; ++i)
    PyTuple_SetItem(tuple, i, result_of(entry, key, made, i));
  return tuple;
}

static int stream_of(const Entry* entry, const Key* key, void** stream) {
  *stream = NULL;
  if (entry->ordinal < 0) return 1;
  const DlpackExchange* exchange = key->operands[0].type->exchange;
  if (entry->stream >= 0) {
    *stream = (void*)(uintptr_t)entry->stream;
  } else if (exchange == NULL ||
             exchange->current_stream(kDlpackCuda, entry->ordinal, stream) != 0) {
    PyErr_Clear();
    return 0;
  }
  return !may_be_capturing(*stream);
}

/* Launches the plan. No Python code runs from the search for a workspace to the launch, so a
 * workspace that was ready stays ready. */
static int launch(const Entry* entry, const Key* key, unsigned char* blob, void* stream) {
  Arena* arena = NULL;
  void* workspace = NULL;
  if (entry->workspace_bytes > 0) {
    arena = ready_arena(entry->ordinal, stream, entry->workspace_bytes, entry->zeroed_bytes,
                        &workspace);
    if (arena == NULL) return 0;
  }
  for (int i = 0; i < entry->num_places; ++i) {
    const Place* place = &entry->places[i];
    put(blob, place->at, place->count, key->operands[place->operand].data);
  }
  for (int i = 0; i < entry->num_pointers; ++i)
    put(blob, &entry->pointers[i][0], 1, blob + entry->pointers[i][1]);
  Py_XINCREF((PyObject*)arena);
  int failed =
      run_plan(entry->ordinal, entry->plan, blob, workspace, entry->workspace_bytes, stream);
  if (failed && arena != NULL) arena->zero_bytes = 0;
  Py_XDECREF((PyObject*)arena);
  return failed ? -1 : 1;
}

int entry_run(Entry* entry, const Key* key, PyObject** result) {
  _Alignas(16) unsigned char blob[kMaxBlob];
  PyObject* made[kMaxFresh] = {NULL};
  void* stream;
  if (!addresses_fit(entry, key) || !stream_of(entry, key, &stream)) return 0;
  memcpy(blob, entry->blob, entry->blob_bytes);
  int done = make_fresh(entry, key, made, blob);
  if (done > 0) done = launch(entry, key, blob, stream);
  if (done > 0) {
    *result = results_of(entry, key, made);
    if (*result == NULL) done = -1;
  }
  for (int i = 0; i < entry->num_fresh; ++i) Py_XDECREF(made[i]);
  return done;
}
