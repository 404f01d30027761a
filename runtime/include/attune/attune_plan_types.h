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

/* The least tuned kernel that attune_plan_get may choose. */
typedef enum attune_policy {
  /* $ATTUNE_POLICY if it is set, else ATTUNE_POLICY_DEFAULT. */
  ATTUNE_POLICY_FROM_ENVIRONMENT = -1,
  /* Any kernel: a tuned one, else one with the default config, else the reference. */
  ATTUNE_POLICY_DEFAULT = 0,
  /* A kernel tuned for some shape of this kind, else ATTUNE_NOT_TUNED. */
  ATTUNE_POLICY_NEAREST = 1,
  /* A kernel tuned for this shape or its bucket, else ATTUNE_NOT_TUNED. */
  ATTUNE_POLICY_STRICT = 2
} attune_policy;

/* How a plan's config was found, from the best to the last choice. */
typedef enum attune_rung {
  /* A pin names it. */
  ATTUNE_RUNG_PINNED = 0,
  /* It was tuned for this shape. */
  ATTUNE_RUNG_EXACT = 1,
  /* It was tuned for another shape of the same bucket: each length and batch * num_heads_q round up
   * to the same powers of two. */
  ATTUNE_RUNG_BUCKET = 2,
  /* It was tuned for a similar shape, or on a CPU for this shape with another number of threads. */
  ATTUNE_RUNG_NEAREST = 3,
  /* It was not tuned: the template's default config. */
  ATTUNE_RUNG_DEFAULT_CONFIG = 4,
  /* No template but the slow reference serves the problem. */
  ATTUNE_RUNG_REFERENCE = 5
} attune_rung;

/* Filled by attune_plan_get_info. Texts live as long as the plan. */
typedef struct attune_plan_info {
  /* sizeof(attune_plan_info). Set it before the call. */
  size_t size;

  /* ---- Kernel ---- */
  /* attune_rung. */
  int32_t rung;
  /* Registers per thread; -1 = not known. */
  int32_t registers;
  /* The name of the template, "prefill_sm90". */
  const char* kernel_template;
  /* The architecture that the kernel is compiled for. */
  const char* arch;
  /* The knobs and their values. */
  const char* config;
  /* Median time in microseconds, as tuned on this device for this very shape. 0 = not known, or
   * noisy: the 95 % interval is wider than 20 % of the median. */
  double expected_us;

  /* ---- Memory ---- */
  /* Bytes of workspace that attune_run needs, on the device and aligned to 256 bytes. 0 = none. */
  size_t workspace_bytes;
  /* Dynamic shared memory per block, in bytes. */
  int64_t shared_bytes;
  /* The workspace's first bytes. attune_workspace_init zeroes them, and each run leaves them zero.
   * A run may write anything to the bytes behind them. */
  size_t zeroed_bytes;

  /* ---- Device ---- */
  /* N of cuda:N; -1 on a CPU. */
  int32_t device_ordinal;
  /* Always 0. */
  int32_t reserved;
} attune_plan_info;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_PLAN_TYPES_H_ */
