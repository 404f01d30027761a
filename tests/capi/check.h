/* SPDX-License-Identifier: Apache-2.0
 * Shared by the C tests: counting checks, and a context on the CPU without a store. Exit status 77
 * = skipped, said aloud.
 */
#ifndef ATTUNE_TESTS_CAPI_CHECK_H_
#define ATTUNE_TESTS_CAPI_CHECK_H_

#include <attune/attune.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ++failures;                                                             \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

#define CHECK_OK(call)                                                       \
  do {                                                                       \
    const attune_status status_ = (call);                                    \
    if (status_ != ATTUNE_OK) {                                              \
      ++failures;                                                            \
      fprintf(stderr, "%s:%d: %s gives %s: %s\n", __FILE__, __LINE__, #call, \
              attune_status_name(status_), attune_last_error());             \
    }                                                                        \
  } while (0)

/* The call must fail with this status, and the sentence must hold these words. */
#define CHECK_REFUSED(call, expected, words)                                                       \
  do {                                                                                             \
    const attune_status status_ = (call);                                                          \
    if (status_ != (expected) || strstr(attune_last_error(), (words)) == NULL) {                   \
      ++failures;                                                                                  \
      fprintf(stderr, "%s:%d: %s gives %s: \"%s\"; expected %s with \"%s\"\n", __FILE__, __LINE__, \
              #call, attune_status_name(status_), attune_last_error(),                             \
              attune_status_name(expected), (words));                                              \
    }                                                                                              \
  } while (0)

static inline attune_context* cpu_context(void) {
  attune_context_options options;
  attune_context* context = NULL;
  attune_context_options_init(&options);
  options.target = "cpu";
  options.store = "";
  if (attune_context_create(&options, &context) == ATTUNE_COMPILE_ERROR) {
    printf("SKIP: no CPU target: %s\n", attune_last_error());
    exit(77);
  }
  CHECK(context != NULL);
  return context;
}

static inline void* aligned(size_t bytes) {
  void* memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  if (memory == NULL) abort();
  memset(memory, 0, bytes);
  return memory;
}

static inline int finish(void) {
  if (failures > 0) fprintf(stderr, "%d check(s) failed\n", failures);
  return failures == 0 ? 0 : 1;
}

#endif /* ATTUNE_TESTS_CAPI_CHECK_H_ */
