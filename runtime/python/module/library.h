/* SPDX-License-Identifier: Apache-2.0
 * The functions of libattune.so and of the driver. Used by all files that call them. */
#ifndef ATTUNE_PYTHON_LIBRARY_H_
#define ATTUNE_PYTHON_LIBRARY_H_

#include "python.h"

#include <attune/attune.h>
#include <attune/attune_group.h>

/* The functions of attune.h that the module calls. */
/* clang-format off */
#define ATTUNE_LIBRARY_FUNCTIONS(X) \
  X(attune_abi_version) X(attune_block_map_build) X(attune_block_map_init_sized) \
  X(attune_context_create) X(attune_context_destroy) X(attune_context_device) \
  X(attune_context_options_init_sized) X(attune_context_pin_digest) X(attune_context_reload) \
  X(attune_dropout_mask) X(attune_dropout_rate) X(attune_group_schedule) X(attune_last_error) \
  X(attune_plan_explain) \
  X(attune_plan_get) X(attune_plan_get_info) X(attune_plan_release) X(attune_problem_check) \
  X(attune_problem_parse_sized) X(attune_program_nodes) X(attune_program_parse) \
  X(attune_program_text) X(attune_rotary_init_sized) X(attune_rotary_table) X(attune_run) \
  X(attune_version) X(attune_workspace_init)
/* clang-format on */

#define ATTUNE_LIBRARY_MEMBER(name) __typeof__(&(name)) name;
typedef struct Library {
  ATTUNE_LIBRARY_FUNCTIONS(ATTUNE_LIBRARY_MEMBER)
} Library;
#undef ATTUNE_LIBRARY_MEMBER

/* All NULL before connect(), which adds the functions that use them to the module. */
extern Library library;

/* connect(path, error): opens libattune.so. error(status, message) makes the exception that failed
 * calls raise. Raises OSError if the file cannot be loaded, and ImportError if it is of another
 * version. Returns 0, or -1 with an exception. */
int connect_library(PyObject* arguments);

/* Returns 0 for ATTUNE_OK. Otherwise raises the error with attune_last_error's text, and returns
 * -1. */
int check_status(attune_status status);

/* Calls attune_run. Keeps the GIL for a GPU, where it only enqueues, and releases it for a CPU.
 * Returns 0, or -1 with an exception. */
int run_plan(int ordinal, const void* plan, const void* operands, void* workspace,
             size_t workspace_bytes, void* stream);

/* Returns a function of the CUDA driver that the process has loaded; NULL without a driver. */
void* driver_function(const char* name);

/* True if a CUDA graph captures `stream`, or if the driver cannot report it. */
int may_be_capturing(void* stream);

#endif /* ATTUNE_PYTHON_LIBRARY_H_ */
