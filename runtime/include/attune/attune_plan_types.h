/* SPDX-License-Identifier: Apache-2.0
 * How a kernel is chosen, and what a plan says about itself. attune_types.h includes this file.
 */
#ifndef ATTUNE_ATTUNE_PLAN_TYPES_H_
#define ATTUNE_ATTUNE_PLAN_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The last rung (attune_rung) from which attune_plan_get may choose a kernel. Below it,
 * attune_plan_get returns ATTUNE_NOT_TUNED. */
typedef enum attune_policy {
  /* $ATTUNE_POLICY if it is set, else ATTUNE_POLICY_DEFAULT. */
  ATTUNE_POLICY_FROM_ENVIRONMENT = -1,
  /* Any kernel: a tuned one, else one with the default config, else the reference. */
  ATTUNE_POLICY_DEFAULT = 0,
  /* A kernel tuned for any shape of a problem that is otherwise equal. */
  ATTUNE_POLICY_NEAREST = 1,
  /* A kernel tuned for this shape or its bucket. */
  ATTUNE_POLICY_STRICT = 2
} attune_policy;

/* How a plan's config was found, from the best to the last choice. */
typedef enum attune_rung {
  /* A pin names the config. */
  ATTUNE_RUNG_PINNED = 0,
  /* The config was tuned for this shape. */
  ATTUNE_RUNG_EXACT = 1,
  /* The config was tuned for another shape of the same bucket: each length and batch * num_heads_q
   * round up to the same powers of two. */
  ATTUNE_RUNG_BUCKET = 2,
  /* The config was tuned for a similar shape, or on a CPU for this shape or its bucket with another
   * number of threads. */
  ATTUNE_RUNG_NEAREST = 3,
  /* Nothing was tuned: the config is the template's default. */
  ATTUNE_RUNG_DEFAULT_CONFIG = 4,
  /* No template but the slow reference serves the problem. */
  ATTUNE_RUNG_REFERENCE = 5
} attune_rung;

/* Filled by attune_plan_get_info. Texts live as long as the plan. */
typedef struct attune_plan_info {
  /* sizeof(attune_plan_info). Set it before the call. */
  size_t size;

  /* ---- Kernel ---- */
  /* The attune_rung that chose the config. */
  int32_t rung;
  /* The number of registers per thread; -1 = not known. */
  int32_t registers;
  /* The name of the template, for instance "prefill_sm90". */
  const char* kernel_template;
  /* The architecture that the kernel is compiled for. */
  const char* arch;
  /* The knobs of the template and their values, as text. */
  const char* config;
  /* The median time in microseconds that was measured on this device for exactly this shape. 0 =
   * not known, or noisy: the 95 % interval is wider than 20 % of the median. */
  double expected_us;

  /* ---- Memory ---- */
  /* The bytes of workspace that attune_run needs on the device, aligned to 256 bytes. 0 = none. */
  size_t workspace_bytes;
  /* The bytes of dynamic shared memory per block. */
  int64_t shared_bytes;
  /* The number of bytes at the start of the workspace that must be zero before a run.
   * attune_workspace_init zeroes them, and each run leaves them zero. A run may write anything to
   * the bytes after them. */
  size_t zeroed_bytes;

  /* ---- Device ---- */
  /* The number of the GPU, N of cuda:N; -1 on a CPU. */
  int32_t device_ordinal;
  /* Always 0. */
  int32_t reserved;
} attune_plan_info;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_PLAN_TYPES_H_ */
