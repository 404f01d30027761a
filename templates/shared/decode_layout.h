// SPDX-License-Identifier: Apache-2.0
// The workspace of decode kernels: host code sizes it, kernels find their parts in it.
//
// | tensor                         | extents                                                      |
// |--------------------------------|--------------------------------------------------------------|
// | tickets, zero between launches | [items] int, an item as decode_partition.h numbers them      |
// | parts, fp32                    | [2 * workers][rows][head_dim_v + 2]: O without its division, |
// |                                | then of each row the largest score (log2) and the sum; with  |
// |                                | `waits` zero between launches                                |
#pragma once

#include "shared/host_device.h"

namespace attune {

constexpr int kDecodeRows = 16;  // per item: the m16 of mma.sync

// Rows of K or V in shared memory: an odd number of 16 bytes each, so that they fall into different
// banks, or panels as TMA writes them (cuda/attention/decode_slots.cuh, of `loads`). `row_bytes`:
// of a row in the cache, a multiple of 16.
ATTUNE_HOST_DEVICE constexpr bool decode_has_panels(int loads, int row_bytes) {
  return loads >= 2 || (loads == 0 && row_bytes % 128 == 0);
}
ATTUNE_HOST_DEVICE constexpr int decode_row_bytes(int row_bytes) { return row_bytes | 16; }
ATTUNE_HOST_DEVICE constexpr int decode_tile_bytes(int keys, int row_bytes, int loads) {
  return keys * (decode_has_panels(loads, row_bytes) ? row_bytes : decode_row_bytes(row_bytes));
}
// Lines of 128 bytes that a key of several heads has in a panel: an odd number, so 1 of one head.
ATTUNE_HOST_DEVICE constexpr int decode_lines_of_key(int heads) { return heads | 1; }
// Floats that each warp leaves of its rows at a time when the warps of a team are joined.
constexpr int kDecodeJoinFloats = kDecodeRows * 32;

// Rows of q are held in registers as long as these last; else each warp keeps them in shared
// memory, padded.
ATTUNE_HOST_DEVICE constexpr bool decode_keeps_q(int head_dim_qk) { return head_dim_qk > 176; }
ATTUNE_HOST_DEVICE constexpr int decode_q_bytes(int head_dim_qk) {
  return decode_keeps_q(head_dim_qk) ? kDecodeRows * (head_dim_qk * 2 + 16) : 0;
}

// Shared memory of a block: rings, one a warp or one for warps that read the same keys of a head
// each, then what warps are joined through: values, largest scores and sums of each warp and of its
// team, and a word for each; then barriers, as many as warps have stages, and rows of q where they
// are not held in registers.
struct DecodeShared {
  int slot_bytes, join_at, stats_at, ticket_at, barriers_at, q_at, bytes;
};
ATTUNE_HOST_DEVICE constexpr DecodeShared decode_shared(int warps, int rings, int stages,
                                                        int slot_bytes, int head_dim_qk) {
  DecodeShared made{slot_bytes, rings * stages * slot_bytes, 0, 0, 0, 0, 0};
  made.stats_at = made.join_at + warps * kDecodeJoinFloats * 4;
  made.ticket_at = made.stats_at + 2 * warps * kDecodeRows * 8;
  made.barriers_at = made.ticket_at + (warps * 4 + 15) / 16 * 16;
  made.q_at = (made.barriers_at + warps * stages * 8 + 15) / 16 * 16;
  made.bytes = made.q_at + warps * decode_q_bytes(head_dim_qk);
  return made;
}

// Floats of a slot of parts: whole lines of 128 bytes.
ATTUNE_HOST_DEVICE constexpr long long decode_part_floats(int rows, int head_dim_v) {
  return (static_cast<long long>(rows) * (head_dim_v + 2) + 31) / 32 * 32;
}
// Tickets take whole 256 bytes.
ATTUNE_HOST_DEVICE constexpr long long decode_ticket_bytes(long long items) {
  return (items * 4 + 255) / 256 * 256;
}
// Rows of a part, as many as the largest item has.
ATTUNE_HOST_DEVICE constexpr int decode_part_rows(int seqlen_q, int ratio) {
  return static_cast<long long>(seqlen_q) * ratio < kDecodeRows ? seqlen_q * ratio : kDecodeRows;
}
// Tiles of 16 rows that the rows of one head of K make, with `ratio` heads of q each.
ATTUNE_HOST_DEVICE constexpr int decode_row_tiles(int seqlen_q, int ratio) {
  return static_cast<int>((static_cast<long long>(seqlen_q) * ratio + kDecodeRows - 1) /
                          kDecodeRows);
}

}  // namespace attune
