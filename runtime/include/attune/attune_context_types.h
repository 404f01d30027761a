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

/* Receives the messages of one context. level: 0 debug, 1 info, 2 warning, 3 error. It is called
 * inside a call on that context, on the thread that makes the call. It must not call attune. */
typedef void (*attune_log_function)(void* user, int level, const char* message);

/* A bundle file in memory, for instance linked into the program. The bytes must stay valid until
 * the context is destroyed and its last plan is released. */
typedef struct attune_memory_bundle {
  const void* data;
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

  /* ---- Where tuned kernels are looked for ---- */
  /* The user's store file. "" = no store. NULL (default) = $ATTUNE_STORE, else
   * ~/.cache/attune/store.db. */
  const char* store;
  /* Store files below the user's store, only read. None (default) = $ATTUNE_SITE_STORES, else the
   * stores of the installation. */
  const char* const* more_stores;
  size_t num_more_stores;
  /* Folders and files that `attune export` wrote. They are searched before the stores. Default
   * none. */
  const char* const* bundles;
  size_t num_bundles;

  /* ---- What may run ---- */
  /* attune_policy. Default ATTUNE_POLICY_FROM_ENVIRONMENT. */
  int32_t policy;
  /* 1 = never compile. 0 (default) = compile unless $ATTUNE_NO_JIT is 1. */
  int32_t no_jit;

  /* ---- Capture and log ---- */
  /* A regular file to which the context appends the problems that it is asked for, one JSON object
   * per line. NULL (default) = $ATTUNE_CAPTURE. */
  const char* capture_file;
  /* The log function of this context. NULL (default) = stderr if $ATTUNE_LOG is set. Without both,
   * one line goes to stderr, once per process: AT106, a named store is not used. */
  attune_log_function log;
  /* Passed to the log function. */
  void* log_user;

  /* ---- Compiler ---- */
  /* Absolute folders that are searched for NVRTC unless the process has loaded it. They count for
   * all contexts, and must be given before the first compilation. Default none. */
  const char* const* nvrtc_folders;
  size_t num_nvrtc_folders;

  /* ---- Where tuned kernels are looked for, part 2 ---- */
  /* A file that `attune pin` wrote. A problem that it names runs as it says or is refused. "" = no
   * file. NULL (default) = $ATTUNE_PIN. */
  const char* pin;
  /* Bundles in memory. They are searched before `bundles`. Default none. */
  const attune_memory_bundle* memory_bundles;
  size_t num_memory_bundles;
} attune_context_options;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CONTEXT_TYPES_H_ */
