/* SPDX-License-Identifier: Apache-2.0
 * The options of a context. attune_types.h includes this file; attune_plan_types.h has
 * attune_policy.
 */
#ifndef ATTUNE_ATTUNE_CONTEXT_TYPES_H_
#define ATTUNE_ATTUNE_CONTEXT_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function that receives the messages of one context. level: 0 debug, 1 info, 2 warning, 3 error.
 * It runs inside a call on that context, on the thread of that call. It must not call attune. */
typedef void (*attune_log_function)(void* user, int level, const char* message);

/* A bundle file in memory, for instance linked into the program. The bytes must stay valid until
 * the context is destroyed and its last plan is released. */
typedef struct attune_memory_bundle {
  /* The first byte. Must not be NULL. */
  const void* data;
  /* The number of bytes. */
  size_t bytes;
} attune_memory_bundle;

/* Start from attune_context_options_init. A field that is NULL or 0 has its default. */
typedef struct attune_context_options {
  /* sizeof(attune_context_options), set by attune_context_options_init. */
  size_t size;

  /* ---- Device ---- */
  /* "cuda" (the device of the current CUDA context), "cuda:N", "cpu" or "cpu:THREADS". NULL, "" or
   * "auto" (default) = the GPU if there is one, else the CPU. */
  const char* target;

  /* ---- Files that are searched for tuned kernels ---- */
  /* The user's store file. "" = no store. NULL (default) = $ATTUNE_STORE, else
   * ~/.cache/attune/store.db. */
  const char* store;
  /* Store files that are searched after the user's store and only read. NULL (default) =
   * $ATTUNE_SITE_STORES, else the stores of the installation. */
  const char* const* more_stores;
  /* The number of more_stores. Default 0. */
  size_t num_more_stores;
  /* Folders and files that `attune export` wrote. They are searched before the stores. NULL
   * (default) = $ATTUNE_BUNDLE, else none. */
  const char* const* bundles;
  /* The number of bundles. Default 0. */
  size_t num_bundles;

  /* ---- What may run ---- */
  /* The least tuned kernel that may run, an attune_policy. Default
   * ATTUNE_POLICY_FROM_ENVIRONMENT. */
  int32_t policy;
  /* 1 = never compile. 0 (default) = compile unless $ATTUNE_NO_JIT is 1. */
  int32_t no_jit;

  /* ---- Capture and log ---- */
  /* A regular file to which the context appends the problems of its plans, one JSON object per
   * line. NULL (default) = $ATTUNE_CAPTURE, else no file. */
  const char* capture_file;
  /* The log function of this context. NULL (default) = stderr if $ATTUNE_LOG is set. Without both,
   * only message AT106, a named store is not used, goes to stderr, once per process and store. */
  attune_log_function log;
  /* The first argument of each call of the log function. Default NULL. */
  void* log_user;

  /* ---- Compiler ---- */
  /* Absolute folders that are searched for NVRTC unless the process has loaded it. They apply to
   * all contexts, and must be given before the first compilation. NULL (default) = none. */
  const char* const* nvrtc_folders;
  /* The number of nvrtc_folders. Default 0. */
  size_t num_nvrtc_folders;

  /* ---- Files that are searched for tuned kernels, part 2 ---- */
  /* A file that `attune pin` wrote. A problem in the file runs with the kernel given there or is
   * refused. "" = no file. NULL (default) = $ATTUNE_PIN, else no file. */
  const char* pin;
  /* Bundles in memory. They are searched before `bundles`. NULL (default) = none. */
  const attune_memory_bundle* memory_bundles;
  /* The number of memory_bundles. Default 0. */
  size_t num_memory_bundles;
} attune_context_options;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CONTEXT_TYPES_H_ */
