/* SPDX-License-Identifier: Apache-2.0
 * How a plan is chosen, and what it tells of itself. attune_types.h includes this file.
 */
#ifndef ATTUNE_ATTUNE_PLAN_TYPES_H_
#define ATTUNE_ATTUNE_PLAN_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The lowest rung that attune_plan_get may take. */
typedef enum attune_policy {
  ATTUNE_POLICY_FROM_ENVIRONMENT = -1, /* $ATTUNE_POLICY, else default */
  ATTUNE_POLICY_DEFAULT = 0,           /* any: tuned, else the default config, else the reference */
  ATTUNE_POLICY_NEAREST = 1,           /* some tuned shape of this kind, else ATTUNE_NOT_TUNED */
  ATTUNE_POLICY_STRICT = 2             /* this shape or its bucket, else ATTUNE_NOT_TUNED */
} attune_policy;

/* How a plan's config was found. */
typedef enum attune_rung {
  ATTUNE_RUNG_PINNED = 0,
  ATTUNE_RUNG_EXACT = 1,
  ATTUNE_RUNG_BUCKET = 2,
  ATTUNE_RUNG_NEAREST = 3, /* a similar shape; on a CPU also this one tuned with other threads */
  ATTUNE_RUNG_DEFAULT_CONFIG = 4,
  ATTUNE_RUNG_REFERENCE = 5
} attune_rung;

typedef struct attune_plan_info {
  size_t size;
  int32_t rung;                /* attune_rung */
  int32_t registers;           /* per thread; -1 = not known */
  const char* kernel_template; /* texts live as long as the plan */
  const char* arch;
  const char* config;
  double expected_us;     /* as tuned here for this very shape; 0 = not known, or noisy: the
                             95 % interval is wider than 20 % of the median */
  size_t workspace_bytes; /* what attune_run needs; 256-byte aligned, on the device */
  int64_t shared_bytes;   /* dynamic shared memory of a block */
  size_t zeroed_bytes; /* the workspace's first bytes, which attune_workspace_init zeroes and every
                             run leaves zero; what lies behind them a run may write */
  int32_t device_ordinal; /* N of cuda:N, -1 on a CPU */
  int32_t reserved;       /* 0 */
} attune_plan_info;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_PLAN_TYPES_H_ */
