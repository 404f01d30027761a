// SPDX-License-Identifier: Apache-2.0
// Dynamic shared memory of the backward_sm80 kernels as a function of a config. Kernels, search
// space and launch read this one text.
//
// All kernels have the same shape: tiles of two operands stay, tiles of two others stream past
// them.
//
// | kernel        | stays: first, second | streams: first, second | statistics with them |
// |---------------|----------------------|------------------------|----------------------|
// | attune_kernel | q, dout              | k, v                   | none                 |
// | attune_keys   | k, v                 | q, dout                | L2, delta            |
// | attune_values | k                    | q, dout                | L2, delta            |
//
// | offset     | bytes                           | what                             |
// |------------|---------------------------------|----------------------------------|
// | 0          | stay_rows * row(qk)             | first                            |
// | second     | stay_rows * row(v)              | second                           |
// | ring       | slots * slot_bytes              | first and second of a step, L2, delta |
// | state      | 16 * (1 + warps)                | cuda/mma/tile_state.cuh    |
//
// row(head_dim): prefill_sm80_row_bytes, with the swizzle of cuda/mma/shared_tile.cuh. Tiles
// begin at multiples of 128 bytes.
#pragma once

#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

struct BackwardSm80Tile {
  int stay_rows;
  int step_rows;
  int warps;
  int slots;
  int head_dim_qk;
  int head_dim_v;
  bool has_second;      // the second operand's tile stays too
  bool has_statistics;  // L2 and delta come with the streams
};

struct BackwardSm80Layout {
  int row_tiles;  // m16 tiles of a warp
  int threads;
  int second;  // offsets
  int ring;
  int state;
  int slot_second;  // offsets in a slot
  int slot_l2;
  int slot_delta;
  int slot_bytes;
  int bytes;
};

constexpr BackwardSm80Layout backward_sm80_layout(const BackwardSm80Tile& t) {
  const int row_qk = prefill_sm80_row_bytes(t.head_dim_qk);
  const int row_v = prefill_sm80_row_bytes(t.head_dim_v);
  BackwardSm80Layout l{};
  l.row_tiles = t.stay_rows / (16 * t.warps);
  l.threads = 32 * t.warps;
  l.second = t.stay_rows * row_qk;
  l.ring = l.second + (t.has_second ? t.stay_rows * row_v : 0);
  l.slot_second = t.step_rows * row_qk;
  l.slot_l2 = l.slot_second + t.step_rows * row_v;
  l.slot_delta = l.slot_l2 + (t.has_statistics ? 4 * t.step_rows : 0);
  l.slot_bytes = l.slot_delta + (t.has_statistics ? 4 * t.step_rows : 0);
  l.state = l.ring + t.slots * l.slot_bytes;
  l.bytes = l.state + 16 * (1 + t.warps);
  return l;
}

}  // namespace attune
