/* SPDX-License-Identifier: Apache-2.0
 * What a context is made with; attune_types.h includes it, and has the enumerations that it names.
 */
#ifndef ATTUNE_ATTUNE_CONTEXT_TYPES_H_
#define ATTUNE_ATTUNE_CONTEXT_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* level: 0 debug, 1 info, 2 warning, 3 error. Called inside calls on the context it was given to,
 * on the thread that makes the call; must not call attune. */
typedef void (*attune_log_function)(void* user, int level, const char* message);

/* A bundle file in memory, linked in for instance; the context uses the bytes until it is destroyed
 * and the last plan is released. */
typedef struct attune_memory_bundle {
  const void* data;
  size_t bytes;
} attune_memory_bundle;

typedef struct attune_context_options {
  size_t size;
  const char* target;             /* "auto" (or NULL, or ""), "cuda" (the current context's
                                     device), "cuda:N", "cpu", "cpu:THREADS" */
  const char* store;              /* the user's store file; "" = none; NULL = $ATTUNE_STORE, else
                                     ~/.cache/attune/store.db */
  const char* const* more_stores; /* read-only layers below it; none given = $ATTUNE_SITE_STORES,
                                     else those of the installation */
  size_t num_more_stores;
  const char* const*
      bundles; /* folders and files written by `attune export`; asked before the stores */
  size_t num_bundles;
  int32_t policy;           /* attune_policy */
  int32_t no_jit;           /* 1 = never compile; also when $ATTUNE_NO_JIT is 1 */
  const char* capture_file; /* a regular file of problems, JSON lines; NULL = $ATTUNE_CAPTURE */
  attune_log_function log; /* of this context alone; NULL = stderr, when $ATTUNE_LOG is set. Without
                               both one line goes to stderr, once a process: AT106, a store that
                               was named is not used */
  void* log_user;
  const char* const* nvrtc_folders; /* absolute; where NVRTC is looked for unless the process has it
                                        loaded. Of all contexts, before the first that compiles */
  size_t num_nvrtc_folders;
  const char* pin; /* file of `attune pin`: what it names is run, or refused; NULL = $ATTUNE_PIN, ""
                      = none */
  const attune_memory_bundle* memory_bundles; /* asked before `bundles` */
  size_t num_memory_bundles;
} attune_context_options;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CONTEXT_TYPES_H_ */
