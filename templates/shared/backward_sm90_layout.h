// SPDX-License-Identifier: Apache-2.0
// Shared memory and registers of the backward_sm90 kernels as functions of a config. Kernels, search space and launch read this one
// text. Sizes in bytes, registers per thread. Panels and swizzle are those of prefill_sm90_layout.h.
//
// Both kernels have the same shape: tiles of two operands stay, tiles of two others stream past them through one ring, by turns.
//
// | kernel        | stays: first, second | streams: first, second | statistics of the ring |
// |---------------|----------------------|------------------------|------------------------|
// | attune_kernel | q, dout              | k, v                   | none                   |
// | attune_keys   | k, v                 | q, dout                | L2 with q, delta with dout |
//
// | region     | bytes                                                | written by | read by           |
// |------------|------------------------------------------------------|------------|-------------------|
// | first      | warpgroups * 64 rows * panels_qk * 128               | TMA        | wgmma, its own    |
// | second     | warpgroups * 64 rows * panels_v * 128                | TMA        | wgmma, its own    |
// | ring       | slots * step_rows * the larger number of panels * 128 | TMA       | wgmma, warpgroups |
// | statistics | slots * step_rows * 4                                | bulk copy  | warpgroups        |
// | barriers   | 8 each                                               | mbarrier   |                   |
//
// When its last product is complete a warpgroup writes its gradients over its own tiles that stay, and TMA reads them there.
#pragma once

#include "shared/prefill_sm90_layout.h"

namespace attune {

struct BackwardSm90Tile {
  int stay_rows;  // 64 for each warpgroup
  int step_rows;
  int slots;
  int head_dim_qk;
  int head_dim_v;
  bool has_second;      // the second tile stays, too
  bool has_statistics;  // the ring has them
};

struct BackwardSm90Layout {
  int warpgroups;  // consumers; one more produces
  int panels_qk;
  int panels_v;
  int first_bytes;  // of one warpgroup
  int second_bytes;
  int slots;
  int slot_bytes;
  int statistics_bytes;  // of a slot
  int first;             // offsets from here on
  int second;
  int ring;
  int statistics;
  int first_full;
  int second_full;
  int full;
  int empty;
  int bytes;
};

constexpr BackwardSm90Layout backward_sm90_layout(const BackwardSm90Tile& t) {
  BackwardSm90Layout l{};
  l.warpgroups = t.stay_rows / kWarpgroupRows;
  l.panels_qk = (t.head_dim_qk + kPanelColumns - 1) / kPanelColumns;
  l.panels_v = (t.head_dim_v + kPanelColumns - 1) / kPanelColumns;
  const int widest = l.panels_qk > l.panels_v ? l.panels_qk : l.panels_v;
  // Where the second does not stay, its gradient leaves through the first.
  l.first_bytes = (t.has_second ? l.panels_qk : widest) * kWarpgroupRows * kPanelRowBytes;
  l.second_bytes = t.has_second ? l.panels_v * kWarpgroupRows * kPanelRowBytes : 0;
  l.slots = t.slots;
  l.slot_bytes = aligned_slot(widest * t.step_rows * kPanelRowBytes);
  l.statistics_bytes = t.has_statistics ? 4 * t.step_rows : 0;
  l.first = 0;
  l.second = l.first + l.warpgroups * l.first_bytes;
  l.ring = l.second + l.warpgroups * l.second_bytes;
  l.statistics = l.ring + l.slots * l.slot_bytes;
  l.first_full = l.statistics + l.slots * l.statistics_bytes;
  l.second_full = l.first_full + 8;
  l.full = l.second_full + 8;
  l.empty = l.full + 8 * l.slots;
  l.bytes = l.empty + 8 * l.slots;
  return l;
}

// The producer needs few registers, so the consumers have what it can spare.
constexpr PrefillSm90Registers backward_sm90_registers(int warpgroups) {
  return prefill_sm90_registers(warpgroups, 1, 1);
}

// Accumulators of a consumer thread: scores and dP of a step in fp32, what is rounded of them for the next product, gradients.
constexpr int backward_sm90_accumulators(int step_rows, int gradient_columns) {
  return 2 * (step_rows / 2) + step_rows / 4 + gradient_columns / 2;
}

// The workspace holds L2 and delta, fp32 [batch, num_heads_q, 2, rows], with so many rows: whole steps and tiles of either kernel.
constexpr long long backward_sm90_rows(long long seqlen_q, int block_m, int key_block_m) {
  const long long tiles = (seqlen_q + block_m - 1) / block_m * block_m;
  const long long steps = (seqlen_q + key_block_m - 1) / key_block_m * key_block_m;
  return tiles > steps ? tiles : steps;
}

// Lanes that make delta of a row, eight columns each.
constexpr int backward_row_lanes(int head_dim_v) {
  int lanes = 1;
  while (8 * lanes < head_dim_v) lanes *= 2;
  return lanes;
}

}  // namespace attune
