// SPDX-License-Identifier: Apache-2.0
// The workspace of decode kernels. Host code computes its size, and kernels the offsets of its
// parts.
//
// | tensor                         | extents                                                      |
// |--------------------------------|--------------------------------------------------------------|
// | tickets, zero between launches | [items] int, with the items of decode_partition.h; for wide  |
// |                                | heads one for each warp that shares the columns              |
// | parts, fp32                    | [2 * workers][rows][head_dim_v + 2]: O without its division, |
// |                                | then the largest score (log2) and the sum per row; with      |
// |                                | `waits`, zero between launches. Wide heads: a part for each  |
// |                                | of these warps, of its own columns                           |
#pragma once

#include "shared/host_device.h"

namespace attune {

constexpr int kDecodeRows = 16;  // the most rows of an item: the m16 of mma.sync
// Keys that decode_cpu processes together. The workspace holds their scores.
constexpr int kDecodeBlockKeys = 64;

// Heads above 256 columns are wide. kDecodeColumnWarps warps share the columns of each key: a warp
// has at most 144 of K and 128 of V, as many as registers hold. Each multiplies its own columns.
constexpr int kDecodeNarrowHead = 256, kDecodeColumnWarps = 4;

// Returns how many of `columns` each of `warps` warps has. Columns are dealt in steps of 16, so the
// last warps may have fewer.
ATTUNE_HOST_DEVICE constexpr int decode_own_columns(int columns, int warps) {
  return (columns / 16 + warps - 1) / warps * 16;
}

// The warps that share the columns of a key, and the columns that each of them has. If values are
// the first columns of keys, a wide head's warp has its columns of V, and a share of the others.
struct DecodeColumns {
  int warps, qk, v;
  bool values_in_keys;  // a slot has no rows of V
};
ATTUNE_HOST_DEVICE constexpr DecodeColumns decode_columns(int head_dim_qk, int head_dim_v,
                                                          bool v_in_k) {
  const bool is_wide = head_dim_qk > kDecodeNarrowHead || head_dim_v > kDecodeNarrowHead;
  const int warps = is_wide ? kDecodeColumnWarps : 1, v = decode_own_columns(head_dim_v, warps);
  if (is_wide && v_in_k)
    return {warps, v + decode_own_columns(head_dim_qk - head_dim_v, warps), v, true};
  return {warps, decode_own_columns(head_dim_qk, warps), v, false};
}

// A row of K or V in shared memory takes an odd number of 16-byte units, so that rows fall into
// different banks. Otherwise rows lie in panels as TMA writes them
// (cuda/decode_sm80/decode_slots.cuh explains `loads`). `row_bytes` is the size of a row in the
// cache, a multiple of 16.
ATTUNE_HOST_DEVICE constexpr bool decode_has_panels(int loads, int row_bytes, int panel_bytes) {
  return loads >= 2 || (loads == 0 && row_bytes % panel_bytes == 0);
}
ATTUNE_HOST_DEVICE constexpr int decode_row_bytes(int row_bytes) { return row_bytes | 16; }
ATTUNE_HOST_DEVICE constexpr int decode_tile_bytes(int keys, int row_bytes, int loads,
                                                   int panel_bytes) {
  return keys * (decode_has_panels(loads, row_bytes, panel_bytes) ? row_bytes
                                                                  : decode_row_bytes(row_bytes));
}
// Returns the bytes of a row in a panel. A row of 128 columns of 4 bits has 64 bytes.
ATTUNE_HOST_DEVICE constexpr int decode_panel_bytes(int bits) { return bits == 4 ? 64 : 128; }
// Returns the 128-byte lines per key in a panel that holds `heads` heads: an odd number, 1 for one
// head.
ATTUNE_HOST_DEVICE constexpr int decode_lines_of_key(int heads) { return heads | 1; }
// Floats of its rows that each warp stores at a time when the warps of a team are joined.
constexpr int kDecodeJoinFloats = kDecodeRows * 32;

// Returns the bytes of factors per slot: the factors for K of the slot's keys, then the factors for
// V. They follow all other shared memory.
ATTUNE_HOST_DEVICE constexpr int decode_factor_bytes(int keys) { return keys * 8; }
// Returns the bytes per slot of the keys that lists name. They follow all factors.
ATTUNE_HOST_DEVICE constexpr int decode_key_bytes(int keys) { return keys * 4; }

// Returns the bytes with which a warp gives its part of the scores of a tile to the others that
// share the columns: fp32 scores of two tiles. The areas follow rows of q.
ATTUNE_HOST_DEVICE constexpr int decode_exchange_bytes(int keys, int column_warps) {
  return column_warps > 1 ? 2 * kDecodeRows * keys * 4 : 0;
}

// True if `rows` rows of q are too long for registers. Then each warp keeps its rows of q in shared
// memory, padded.
ATTUNE_HOST_DEVICE constexpr bool decode_keeps_q(int head_dim_qk, int rows) {
  return head_dim_qk * rows > 176 * kDecodeRows;
}
ATTUNE_HOST_DEVICE constexpr int decode_q_bytes(int head_dim_qk, int rows) {
  return decode_keeps_q(head_dim_qk, rows) ? rows * (head_dim_qk * 2 + 16) : 0;
}

// Shared memory of a block. First the rings: one per warp, or one for all warps that read the same
// keys of different heads. Then the data for joining warps: values, largest scores and sums of each
// warp and of its team, and one word per warp. Then one barrier per stage of each warp, rows of q
// if registers do not hold them, and `exchange_bytes` for each warp.
struct DecodeShared {
  int slot_bytes, join_at, stats_at, ticket_at, barriers_at, q_at, exchange_at, bytes;
};
ATTUNE_HOST_DEVICE constexpr DecodeShared decode_shared(int warps, int rings, int slots,
                                                        int slot_bytes, int head_dim_qk, int rows,
                                                        int exchange_bytes = 0) {
  DecodeShared made{slot_bytes, rings * slots * slot_bytes, 0, 0, 0, 0, 0, 0};
  made.stats_at = made.join_at + warps * kDecodeJoinFloats * 4;
  made.ticket_at = made.stats_at + 2 * warps * kDecodeRows * 8;
  made.barriers_at = made.ticket_at + (warps * 4 + 15) / 16 * 16;
  made.q_at = (made.barriers_at + warps * slots * 8 + 15) / 16 * 16;
  made.exchange_at = made.q_at + warps * decode_q_bytes(head_dim_qk, rows);
  made.bytes = made.exchange_at + warps * exchange_bytes;
  return made;
}

// Returns the floats of a slot of parts: whole lines of 128 bytes.
ATTUNE_HOST_DEVICE constexpr long long decode_part_floats(int rows, int head_dim_v) {
  return (static_cast<long long>(rows) * (head_dim_v + 2) + 31) / 32 * 32;
}
// Tickets take whole 256 bytes.
ATTUNE_HOST_DEVICE constexpr long long decode_ticket_bytes(long long items) {
  return (items * 4 + 255) / 256 * 256;
}
// Returns the rows of a part: those of the largest item, which has at most `rows`.
ATTUNE_HOST_DEVICE constexpr int decode_part_rows(int seqlen_q, int ratio, int rows = kDecodeRows) {
  return static_cast<long long>(seqlen_q) * ratio < rows ? seqlen_q * ratio : rows;
}
// Returns the tiles of `rows` rows for one head of K, which `ratio` heads of q share.
ATTUNE_HOST_DEVICE constexpr int decode_row_tiles(int seqlen_q, int ratio, int rows = kDecodeRows) {
  return static_cast<int>((static_cast<long long>(seqlen_q) * ratio + rows - 1) / rows);
}

}  // namespace attune
