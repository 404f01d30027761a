/* SPDX-License-Identifier: Apache-2.0
 * Cascades: attention of requests that share prefixes. The keys of a prefix are read once for all
 * requests that share it. A cascade holds the plans of its levels and the plans that join their
 * results. attune.h says what plans, operands and workspaces are.
 *
 * Levels are problems of ATTUNE_ATTENTION_KVCACHE with packed_q. They go from the widest prefix to
 * the last level, the keys that each request has alone.
 * - In a level, batch is the number of groups of rows that share keys, and seqlen_q the largest
 *   number of rows in a group. Rows of one group follow each other.
 * - A row that is in no group of a level sees none of its keys. A group without keys has length 0.
 * - dtype, heads, head dims, scale and softcap must be the same in all levels.
 * - Each row sees all keys of its groups. Only the last level may have a mask and sinks.
 * - No level may have windows, ALiBi or programs, which look at positions.
 */
#ifndef ATTUNE_ATTUNE_CASCADE_H_
#define ATTUNE_ATTUNE_CASCADE_H_

#include "attune/attune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The plans of a cascade. It never changes, and all threads may use it at once. */
typedef struct attune_cascade attune_cascade;

/* Makes a plan for each level, as attune_plan_get does, and the plans that join levels. layouts:
 * NULL, or one entry per level, which may be NULL. Release the cascade after use. */
ATTUNE_API attune_status attune_cascade_get(attune_context* context, const attune_problem* levels,
                                            size_t num_levels,
                                            const attune_operands* const* layouts,
                                            attune_cascade** cascade);
/* Frees the cascade, which may be NULL. */
ATTUNE_API void attune_cascade_release(attune_cascade* cascade);
/* Returns the bytes of workspace that a run needs, on the device and aligned to 256 bytes. It holds
 * results of levels until they are joined. */
ATTUNE_API size_t attune_cascade_workspace_bytes(const attune_cascade* cascade);
/* Prepares a workspace before its first run, as attune_workspace_init does for a plan. */
ATTUNE_API attune_status attune_cascade_init(const attune_cascade* cascade, void* workspace,
                                             size_t workspace_bytes, void* stream);
/* Enqueues the levels and the kernels that join them on `stream`. levels: the operands of each
 * level. All levels use q of the last level. o and lse of the last level get the result. q, o and
 * lse of the other levels are neither read nor written.
 * With at least two levels, o and lse [num_heads_q, batch * seqlen_q] must have room for
 * batch * seqlen_q rows of the last level, all of which may be written. q_begins[0] of the last
 * level must be 0, which is checked only on a CPU. Everything else is as in attune_run. */
ATTUNE_API attune_status attune_cascade_run(const attune_cascade* cascade,
                                            const attune_operands* const* levels, void* workspace,
                                            size_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CASCADE_H_ */
