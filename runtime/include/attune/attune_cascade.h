/* SPDX-License-Identifier: Apache-2.0
 * Cascades: attention of requests that share prefixes, whose keys are read once for all of them. A cascade is the plans of its levels and
 * of what joins them; see attune.h for what plans, operands and workspaces are.
 *
 * levels: problems of op attention_kvcache with packed_q, from the widest prefix to what each request has alone, the last. Rows that
 * share keys stand side by side: batch of a level is its number of groups, seqlen_q the most rows of one; a row that no
 * group of a level holds sees none of its keys. dtype, heads and head dims are the same in all. Every row sees all keys of its groups but
 * in the last level, which alone may have a mask and sinks; no level has what looks at positions beside it (windows, ALiBi, programs).
 * Groups without keys have length 0.
 */
#ifndef ATTUNE_ATTUNE_CASCADE_H_
#define ATTUNE_ATTUNE_CASCADE_H_

#include "attune/attune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_cascade attune_cascade; /* immutable, as a plan is */

/* As attune_plan_get; layouts: NULL, or that of each level, which may be NULL. Release what you get. */
ATTUNE_API attune_status attune_cascade_get(attune_context* context, const attune_problem* levels,
                                            size_t num_levels,
                                            const attune_operands* const* layouts,
                                            attune_cascade** cascade);
ATTUNE_API void attune_cascade_release(attune_cascade* cascade); /* NULL is fine */
/* Of each run: 256-byte aligned, on the device. It holds results of levels until they are joined. */
ATTUNE_API size_t attune_cascade_workspace_bytes(const attune_cascade* cascade);
/* As attune_workspace_init: once for each buffer. */
ATTUNE_API attune_status attune_cascade_init(const attune_cascade* cascade, void* workspace,
                                             size_t workspace_bytes, void* stream);
/* levels: the operands of each. q of all is the same; o and lse of the last are the result, those of the others are not read. Of two levels and
 * more o, and lse [num_heads_q, batch * seqlen_q], have room for batch * seqlen_q rows of the last level, which may all be written, and
 * its q_begins[0] is 0 (refused on a CPU, where the host reads it; on a GPU nobody looks). Enqueues the levels and what joins them on `stream`; else as attune_run. */
ATTUNE_API attune_status attune_cascade_run(const attune_cascade* cascade,
                                            const attune_operands* const* levels, void* workspace,
                                            size_t workspace_bytes, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CASCADE_H_ */
