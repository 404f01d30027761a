// SPDX-License-Identifier: Apache-2.0
// Shared memory and registers of gradients on Hopper (backward_sm90, _one_kernel and _stored) as
// functions of a config. Kernels, search space and launch read this one text. Sizes in bytes,
// registers per thread. prefill_sm90_layout.h describes panels and swizzle.
//
// The kernels of rows and of keys have the same shape: tiles of two operands stay, tiles of two
// others stream past them, each through a ring. In backward_sm90_stored the kernels of keys keep no
// operand; they stream Q with panels of dS, or dout with panels of P.
//
// | kernel        | stays: first, second | streams: first, second | statistics with them |
// |---------------|----------------------|------------------------|----------------------|
// | attune_kernel | q, dout              | k, v                   | none                 |
// | attune_keys   | k, v                 | q, dout                | L2, delta            |
//
// | region         | bytes                                  | written by | read by           |
// |----------------|----------------------------------------|------------|-------------------|
// | first          | warpgroups * 64 rows * panels_qk * 128 | TMA        | wgmma, its own    |
// | second         | warpgroups * 64 rows * panels_v * 128  | TMA        | wgmma, its own    |
// | ring of first  | slots * step_rows * panels_qk * 128    | TMA        | wgmma, warpgroups |
// | ring of second | slots * step_rows * panels_v * 128     | TMA        | wgmma, warpgroups |
// | statistics     | of each ring: slots * step_rows * 4    | bulk copy  | warpgroups        |
// | barriers       | 8 each                                 | mbarrier   |                   |
//
// After its last product, a warpgroup overwrites its tiles that stay with its gradients, and TMA
// stores the gradients from there.
#pragma once

#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

struct BackwardSm90Tile {
  int stay_rows;  // 64 for each warpgroup
  int step_rows;
  int first_slots;  // slots of the ring of first operands
  int second_slots;
  int head_dim_qk;
  int head_dim_v;
  bool has_second;      // the second operand's tile stays too
  bool has_statistics;  // L2 and delta come with the streams
  int ds_slots = 0;     // slots of dS^T, in the kernel that also computes dQ
};

// A ring that operands stream through: offsets in shared memory, bytes of a slot.
struct BackwardSm90Ring {
  int slots;
  int slot_bytes;
  int statistics_bytes;
  int tiles;
  int statistics;
  int full;
  int empty;
};

struct BackwardSm90Layout {
  int warpgroups;  // consumers; one more produces
  int panels_qk;
  int panels_v;
  int first_bytes;  // per warpgroup
  int second_bytes;
  int first;  // offsets from here on
  int second;
  BackwardSm90Ring first_ring;
  BackwardSm90Ring second_ring;
  int first_full;  // this and the next three: one barrier per warpgroup
  int first_empty;
  int second_full;
  int second_empty;
  int ds;  // offset
  int ds_bytes;
  int bytes;
};

constexpr BackwardSm90Layout backward_sm90_layout(const BackwardSm90Tile& t) {
  BackwardSm90Layout l{};
  l.warpgroups = t.stay_rows / kWarpgroupRows;
  l.panels_qk = (t.head_dim_qk + kPanelColumns - 1) / kPanelColumns;
  l.panels_v = (t.head_dim_v + kPanelColumns - 1) / kPanelColumns;
  const int widest = l.panels_qk > l.panels_v ? l.panels_qk : l.panels_v;
  // If the second operand does not stay, its gradient leaves through the first.
  l.first_bytes = (t.has_second ? l.panels_qk : widest) * kWarpgroupRows * kPanelRowBytes;
  l.second_bytes = t.has_second ? l.panels_v * kWarpgroupRows * kPanelRowBytes : 0;
  l.second = l.first + l.warpgroups * l.first_bytes;
  BackwardSm90Ring& a = l.first_ring;
  BackwardSm90Ring& b = l.second_ring;
  a.slots = t.first_slots;
  b.slots = t.second_slots;
  a.slot_bytes = l.panels_qk * t.step_rows * kPanelRowBytes;
  b.slot_bytes = l.panels_v * t.step_rows * kPanelRowBytes;
  a.statistics_bytes = b.statistics_bytes = t.has_statistics ? 4 * t.step_rows : 0;
  a.tiles = l.second + l.warpgroups * l.second_bytes;
  b.tiles = a.tiles + a.slots * a.slot_bytes;
  l.ds = b.tiles + b.slots * b.slot_bytes;
  l.ds_bytes = l.warpgroups * t.step_rows * kPanelRowBytes;
  a.statistics = l.ds + t.ds_slots * l.ds_bytes;
  b.statistics = a.statistics + a.slots * a.statistics_bytes;
  a.full = b.statistics + b.slots * b.statistics_bytes;
  a.empty = a.full + 8 * a.slots;
  b.full = a.empty + 8 * a.slots;
  b.empty = b.full + 8 * b.slots;
  l.first_full = b.empty + 8 * b.slots;
  l.first_empty = l.first_full + 8 * l.warpgroups;
  l.second_full = l.first_empty + 8 * l.warpgroups;
  l.second_empty = l.second_full + 8 * l.warpgroups;
  l.bytes = l.second_empty + 8 * l.warpgroups;
  return l;
}

// Shared memory of backward_sm90_one_kernel, in addition to the shared memory of attune_keys:
//
// | region                | bytes                 | written by            | read by               |
// |-----------------------|-----------------------|-----------------------|-----------------------|
// | ds                    | slots * warpgroups *  | each warpgroup: a     | wgmma of both         |
// |                       | step_rows * 128       | panel of 64 keys      | warpgroups            |
// | places                | 2 * 16                | threads of turns      | warpgroups: address   |
// |                       |                       |                       | of dQ, and whether    |
// |                       |                       |                       | theirs is the first   |
// | tiles                 | 2 * 16                | the thread that draws | all other roles:      |
// |                       |                       | tiles                 | the number of a tile  |
// | ds full               | one barrier per slot  | warpgroups            | warpgroups            |
// | turn, added           | each one barrier per  | threads of turns;     | warpgroups; threads   |
// |                       | place                 | warpgroups            | of turns              |
// | tile full, tile empty | each one barrier per  | that thread;          | all other roles;      |
// |                       | slot                  | all other roles       | that thread           |
//
// ds lies between the rings and the statistics, where panels are aligned.
struct BackwardOneKernelLayout {
  BackwardSm90Layout parts;
  int places, tiles;  // offsets
  int ds_full, turn, added, tile_full, tile_empty;
  int bytes;
};

constexpr int kOneKernelDsSlots = 4;  // one is written, two wait, one is multiplied
constexpr int kOneKernelPlaces = 2;   // one per thread of turns
constexpr int kOneKernelTileSlots = 2;

constexpr BackwardOneKernelLayout backward_one_kernel_layout(const BackwardSm90Tile& t) {
  BackwardOneKernelLayout l{};
  l.parts = backward_sm90_layout(t);
  l.places = (l.parts.bytes + 15) / 16 * 16;
  l.tiles = l.places + 16 * kOneKernelPlaces;
  l.ds_full = l.tiles + 16 * kOneKernelTileSlots;
  l.turn = l.ds_full + 8 * t.ds_slots;
  l.added = l.turn + 8 * kOneKernelPlaces;
  l.tile_full = l.added + 8 * kOneKernelPlaces;
  l.tile_empty = l.tile_full + 8 * kOneKernelTileSlots;
  l.bytes = l.tile_empty + 8 * kOneKernelTileSlots;
  return l;
}

// The half of a step's dQ that a warpgroup computes. Steps of 64 rows: half of the columns. Steps
// of 128 rows: half of the rows. Other steps: half of the columns, which are the rows of the
// product dQ^T.
enum class DqHalf : int { kColumns, kRows, kTransposed };
constexpr DqHalf backward_dq_half(int step_rows) {
  return step_rows % kWarpgroupRows != 0 ? DqHalf::kTransposed
         : step_rows > kWarpgroupRows    ? DqHalf::kRows
                                         : DqHalf::kColumns;
}

// Returns the columns of a warpgroup's product for dQ, which has 64 rows.
constexpr int backward_one_kernel_columns(int step_rows, int head_dim_qk) {
  switch (backward_dq_half(step_rows)) {
    case DqHalf::kColumns:
      return head_dim_qk / 2;
    case DqHalf::kRows:
      return head_dim_qk;
    default:
      return step_rows;
  }
}

// Returns the columns of dQ that both warpgroups make together. A product dQ^T has 64 rows, so two
// of them make zeros for the columns that dQ lacks.
constexpr int backward_dq_columns(int step_rows, int head_dim_qk) {
  return backward_dq_half(step_rows) == DqHalf::kTransposed ? 2 * kPanelColumns : head_dim_qk;
}

// True if P, dP, rounded P, dK and dV together need too many registers. Then dP and dS are computed
// for half of the rows at a time.
constexpr bool backward_one_kernel_in_halves(int step_rows, int gradient_columns) {
  return step_rows + step_rows / 4 + gradient_columns / 2 > 212;
}

// Returns the bytes of the workspace's first tensor, L2 and delta. Behind it lie either dQ in fp32
// and then the turns, or dS and P.
constexpr long long backward_sums_bytes(long long heads, long long rows) {
  return (8 * heads * rows + 255) / 256 * 256;
}

// The producer needs few registers, so the consumers get those that it can spare.
constexpr PrefillSm90Registers backward_sm90_registers(int warpgroups) {
  return prefill_sm90_registers(warpgroups, 1, kProducer8BitRegisters);
}

// Returns the accumulator registers of a consumer thread: scores and dP of a step in fp32, the
// rounded operand of the next product, and gradients.
constexpr int backward_sm90_accumulators(int step_rows, int gradient_columns) {
  return 2 * (step_rows / 2) + step_rows / 4 + gradient_columns / 2;
}

// Returns how many pairs of statistics (step_statistics.cuh) a thread loads before it waits: as
// many as fit if `taken` registers are in use.
constexpr int kMostEarlyPairs = 12;  // with 16 some kernels spill
constexpr int backward_early_pairs(int step_rows, int taken) {
  const int room = (224 - taken) / 2;
  const int pairs = step_rows / 8 < kMostEarlyPairs ? step_rows / 8 : kMostEarlyPairs;
  return room < 0 ? 0 : room < pairs ? room : pairs;
}

// Returns the registers that dropout takes: the key of a head's signs, and the signs of a step.
// With fewer, some kernels spill.
constexpr int backward_dropout_registers(int step_rows) { return 2 + step_rows / 8; }

struct EarlyPairs {
  int l2;              // pairs to load before S is computed
  int delta;           // pairs to load before dP is computed
  int delta_beside_p;  // likewise, if dV is computed with dP: rounded P takes registers
};
// `others`: registers in use for anything else.
constexpr EarlyPairs backward_early(int step_rows, int gradient_columns, int others) {
  const int taken = step_rows + gradient_columns / 2 + others;  // S, dP, gradients
  return {backward_early_pairs(step_rows, taken - 4), backward_early_pairs(step_rows, taken),
          backward_early_pairs(step_rows, taken + step_rows / 4)};
}

// Returns the rows of L2 and delta in the workspace, fp32 [batch, num_heads_q, 2, rows]: whole
// steps and tiles of both kernels.
constexpr long long backward_sm90_rows(long long seqlen_q, int block_m, int key_block_m) {
  const long long tiles = (seqlen_q + block_m - 1) / block_m * block_m;
  const long long steps = (seqlen_q + key_block_m - 1) / key_block_m * key_block_m;
  return tiles > steps ? tiles : steps;
}

}  // namespace attune
