/* SPDX-License-Identifier: Apache-2.0
 * Replaces the C library's malloc for every library in the process. The Nth allocation after
 * memory_fails_at(N) fails; with `for_ever`, all later ones fail too. For glibc only.
 */
#ifndef ATTUNE_TESTS_CAPI_FAILING_MEMORY_H_
#define ATTUNE_TESTS_CAPI_FAILING_MEMORY_H_

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long memory_fails, memory_asked;
static atomic_int memory_fails_for_ever;

static void memory_fails_at(long n, int for_ever) {
  memory_asked = 0;
  memory_fails_for_ever = for_ever;
  memory_fails = n;
}

/* Makes allocations succeed again. Returns the number of allocations. */
static long memory_is_back(void) {
  memory_fails = 0;
  return memory_asked;
}

static int memory_is_gone(void) {
  const long n = memory_fails;
  if (n == 0) return 0;
  const long asked = atomic_fetch_add(&memory_asked, 1) + 1;
  if (asked != n && !(memory_fails_for_ever && asked > n)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) { return memory_is_gone() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return memory_is_gone() ? NULL : __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  return memory_is_gone() ? NULL : __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  return memory_is_gone() ? NULL : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory != NULL ? 0 : ENOMEM;
}

#endif /* ATTUNE_TESTS_CAPI_FAILING_MEMORY_H_ */
