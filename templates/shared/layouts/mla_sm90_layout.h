// SPDX-License-Identifier: Apache-2.0
// Shared memory of the mla_sm90 kernel, which host code needs too. Sizes in bytes. With 64 rows per
// tile:
//
// | region   | bytes                      | written by       | read by                            |
// |----------|----------------------------|------------------|------------------------------------|
// | q        | panels * 64 rows * 128     | cp.async         | wgmma of both warpgroups           |
// | k slots  | 2 * panels * 64 keys * 128 | TMA              | wgmma: all panels as K, the first  |
// |          |                            |                  | as V                               |
// | p        | 64 rows * 128              | a block's owner  | wgmma of the other warpgroup       |
// | maxima   | 2 * 64 floats              | a block's owner  | the other warpgroup; of all blocks |
// | sums     | 2 * 2 * 64 floats          | a warpgroup each | the other, at the end of a tile    |
// | barriers | 8 each, tiles 64           | as in cache_sm90 |                                    |
// | p full   | 2 barriers                 | a block's owner  | the other: P and maxima are        |
// |          |                            |                  | written                            |
//
// With fewer rows there is one consumer warpgroup, whose products have keys as rows
// (cuda/mla_sm90/mla_keys_first.cuh), and one region of sums:
//
// | q       | panels * rows * 128              | cp.async     | wgmma                             |
// | k slots | as many as there is room for, 24 | TMA          | wgmma: a slot has 3 panels of 64  |
// |         | KB each                          |              | keys                              |
// | p       | rows * 128                       | the consumer | wgmma                             |
// | maxima  | 4 * rows floats                  | a warp each  | all; maxima of a step's keys      |
// | sums    | 4 * rows floats                  | a warp each  | all; sums of a tile's keys; a     |
// |         |                                  |              | warp may write them while others  |
// |         |                                  |              | are at the next maxima            |
//
// Keys of 8 bits come to stages first, of which each gathering warp has two (cuda/mla_sm90/
// staged_keys.cuh). So fewer slots are left:
//
// | stages | 2 * 64 keys * bytes of a key       | bulk copies       | the warp that converts them |
//
// If lists name the keys, cp.async of two warps writes k slots, and another region follows:
//
// | listed | 2 words for each slot of k | the loading warps | the consumers: bit i says whether   |
// |        |                            |                   | the list names key i                |
//
// shared/layouts/prefill_sm90_layout.h describes panels, of 64 columns, and their swizzle. The sums
// of two consecutive tiles have separate places (cuda/mla_sm90/mla_sums.cuh).
#pragma once

#include "shared/latent_rows.h"
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

constexpr int kMlaKeys = 64;  // keys per step
constexpr int kMlaSlots = 2;  // slots of K
constexpr int kMlaHalves =
    2;  // per warpgroup: every other block of keys as K, and half of the columns of V

constexpr int kMlaSlotPanels = 3;        // if keys are rows
constexpr int kMlaStages = 2;            // steps whose 8-bit keys are loaded, if keys are rows
constexpr int kMlaSharedBytes = 232448;  // the most a block may have
constexpr int kMlaOtherBytes = 4096;     // the most for all but Q, K and P

// Returns the number of consumer warpgroups for tiles of `rows` rows.
constexpr int mla_consumers(int rows) { return rows == kWarpgroupRows ? kMlaHalves : 1; }

// Returns all warpgroups of a block: a producer and the consumers, and if keys are converted four
// in all. Those left gather and convert keys.
constexpr int mla_warpgroups(int rows, bool converts) {
  return converts ? 4 : 1 + mla_consumers(rows);
}

// Returns in how many parts of columns P V is computed, of `columns` of V. The compiler refuses one
// of 256 columns if a block has 512 threads, which start with 128 registers.
constexpr int mla_pv_parts(int columns, bool converts) {
  return converts && columns % 256 == 0 ? 2 : 1;
}

constexpr int kMlaConverters = 8;  // warps that convert, if keys are rows

struct MlaSm90Layout {
  PrefillSm90Layout parts;  // parts shared with prefill_sm90; one slot of V, of 0 bytes
  int slots_of_step;        // slots for the keys of a step
  int p, maxima, sums, p_full, listed, stages, stages_full;
  int bytes;
};

// Returns the bytes of a row of 8-bit keys that are converted; 0 if they are not. Latent rows hold
// their factors.
constexpr int mla_code_bytes(int head_dim_qk, int head_dim_v, bool converts, bool has_latent_rows) {
  if (!converts) return 0;
  return has_latent_rows ? latent_row_bytes(head_dim_qk, head_dim_v) : head_dim_qk;
}

constexpr MlaSm90Layout mla_sm90_layout(int head_dim_qk, int rows = kWarpgroupRows,
                                        bool has_lists = false, int code_bytes = 0) {
  MlaSm90Layout all{};
  PrefillSm90Layout& l = all.parts;
  const bool keys_first = rows < kWarpgroupRows;
  l.warpgroups = 1;  // warpgroups with separate rows
  l.row_qk = l.row_v = kPanelRowBytes;
  l.panels_qk = head_dim_qk / kPanelColumns;
  l.q_bytes = l.panels_qk * rows * kPanelRowBytes;
  const int slot_panels = keys_first ? kMlaSlotPanels : l.panels_qk;
  const int p_bytes = rows * kMlaKeys * 2;
  const int stage_bytes = keys_first ? kMlaStages * kMlaKeys * code_bytes : 0;
  all.slots_of_step = (l.panels_qk + slot_panels - 1) / slot_panels;
  l.k_slot_bytes = slot_panels * kMlaKeys * kPanelRowBytes;
  const int for_slots = kMlaSharedBytes - kMlaOtherBytes - l.q_bytes - p_bytes - stage_bytes;
  l.k_slots = keys_first ? for_slots / l.k_slot_bytes : kMlaSlots;
  l.v_slots = 1;
  l.k = l.q + l.q_bytes;
  all.stages = l.k + l.k_slots * l.k_slot_bytes;
  all.p = all.stages + stage_bytes;
  all.maxima = all.p + p_bytes;
  all.sums = all.maxima + (keys_first ? kWarpgroupThreads / 32 : kMlaHalves) * rows * 4;
  all.p_full = all.sums + (keys_first ? kWarpgroupThreads / 32 : 2 * kMlaHalves) * rows * 4;
  l.q_full = all.p_full + (keys_first ? 0 : 8 * kMlaHalves);
  l.q_empty = l.q_full + 8;
  l.k_full = l.q_empty + 8;
  l.k_empty = l.k_full + 8 * l.k_slots;
  l.v_full = l.k_empty + 8 * l.k_slots;
  l.v_empty = l.v_full + 8;
  l.tile_full = l.v_empty + 8;
  l.tile_empty = l.tile_full + 8 * kTileSlots;
  l.tiles = (l.tile_empty + 8 * kTileSlots + 15) / 16 * 16;
  all.listed = l.tiles + kTileSlotBytes * kTileSlots;
  all.stages_full = all.listed + (has_lists ? 8 * l.k_slots : 0);
  l.bytes = all.bytes = all.stages_full + (stage_bytes > 0 ? 8 * kMlaStages * kMlaConverters : 0);
  return all;
}

}  // namespace attune
