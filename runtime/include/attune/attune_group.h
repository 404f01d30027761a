/* SPDX-License-Identifier: Apache-2.0
 * Schedules for attention over one sequence that is spread over several devices (ranks). attune
 * plans; the caller transfers, for instance with NCCL, and launches each step with attune_run.
 * attune.distributed does this in Python over torch.distributed.
 */
#ifndef ATTUNE_ATTUNE_GROUP_H_
#define ATTUNE_ATTUNE_GROUP_H_

#include "attune/attune_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the schedule of one rank as lines of text with a terminating NUL, if they fit `capacity`
 * bytes; else it writes nothing. *bytes (or NULL) gets the bytes that the text needs. The text is a
 * function of the arguments alone, so ranks need not exchange it. Touches no device.
 *
 * whole: the problem of the whole sequence, of op attention with as many rows as keys.
 * request: key=value pairs, of which world and rank are required:
 *   world, rank  the number of ranks, and the rank whose schedule is written
 *   layout       "contiguous", "zigzag", "balanced", "interleaved:N", "auto" (default), or the
 *                tokens of each rank, such as 0-128+384-512/128-384
 *   algorithm    "gather", "exchange", "ring", or "auto" (default): gather or exchange, by bytes
 *   training     1: "auto" counts the bytes of the backward pass too
 *   world_invariant  1: each launch has rows of one of 16 blocks of the sequence, so launches are
 *                the same for each number of ranks. algorithm must be gather, and the layout
 *                contiguous on 1, 2, 4, 8 or 16 ranks, or zigzag on 1, 2, 4 or 8
 *   documents    first tokens of documents and the length, such as 0:100:512
 * Borders of the named layouts are multiples of 128 tokens; a rank may hold none.
 *
 * Lines, with [first, end) for each range:
 *   layout TEXT
 *   algorithm NAME
 *   blocks BORDER ..       (with world_invariant: the first rows of the 16 blocks, and the length)
 *   forward BYTES ..       (that each rank receives; the steps of this rank follow)
 *   transfer ROUND WHAT FROM TO TOKEN_FIRST TOKEN_END HEAD_FIRST HEAD_END BYTES
 *   launch ROUND ROW_FIRST ROW_END KEY_FIRST KEY_END HEAD_FIRST HEAD_END LEFT RIGHT
 *   join ROUND WHAT TOKEN_FIRST TOKEN_END HEAD_FIRST HEAD_END
 *   backward BYTES ..      (likewise)
 * WHAT is q, kv, o, dout, dq or dkv. Transfers of one round are one exchange of all ranks. LEFT and
 * RIGHT are the window of the slice, -1 if open; its diagonal ends at the last row and key. RIGHT 0
 * is mask causal_bottom_right. Heads of launches are heads of q. A join of o merges the partial
 * results of these rows; a join of dkv adds the fp32 gradients of these keys in the order of ranks.
 */
ATTUNE_API attune_status attune_group_schedule(const attune_problem* whole, const char* request,
                                               char* text, size_t capacity, size_t* bytes);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_GROUP_H_ */
