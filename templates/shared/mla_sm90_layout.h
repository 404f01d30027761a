// SPDX-License-Identifier: Apache-2.0
// Shared memory of the mla_sm90 kernel, which host code reads too. Sizes in bytes.
//
// | region   | bytes                     | written by          | read by                                   |
// |----------|---------------------------|---------------------|-------------------------------------------|
// | q        | panels * 64 rows * 128    | cp.async            | wgmma of both warpgroups                  |
// | k slots  | 2 * panels * 64 keys * 128| TMA                 | wgmma: all panels as K, the first as V    |
// | p        | 64 rows * 128             | a block's owner     | wgmma of the other warpgroup              |
// | maxima   | 2 * 64 floats             | a block's owner     | the other: of all blocks so far           |
// | sums     | 2 * 2 * 64 floats         | a warpgroup each    | the other, at the end of a tile           |
// | barriers | 8 each, tiles 64          | as of cache_sm90    |                                           |
// | p full   | 2 barriers                | a block's owner     | the other: that P and maxima stand there  |
//
// Panels, of 64 columns, and their swizzle: shared/prefill_sm90_layout.h. Sums of neighbouring tiles stand apart (cuda/attention/mla_sums.cuh).
#pragma once

#include "shared/prefill_sm90_layout.h"

namespace attune {

constexpr int kMlaKeys = 64;  // of a step
constexpr int kMlaSlots = 2;  // for K
constexpr int kMlaHalves =
    2;  // of the blocks of keys, in turn, as K, and of the columns of V: a warpgroup each

struct MlaSm90Layout {
  PrefillSm90Layout parts;  // what prefill_sm90 has too, with one slot of V that has no bytes
  int p, maxima, sums, p_full;
  int bytes;
};

constexpr MlaSm90Layout mla_sm90_layout(int head_dim_qk) {
  MlaSm90Layout all{};
  PrefillSm90Layout& l = all.parts;
  l.warpgroups = 1;  // that have rows of their own
  l.row_qk = l.row_v = kPanelRowBytes;
  l.panels_qk = head_dim_qk / kPanelColumns;
  l.q_bytes = l.panels_qk * kWarpgroupRows * kPanelRowBytes;
  l.k_slot_bytes = l.panels_qk * kMlaKeys * kPanelRowBytes;
  l.k_slots = kMlaSlots;
  l.v_slots = 1;
  l.k = l.q + l.q_bytes;
  all.p = l.k + l.k_slots * l.k_slot_bytes;
  all.maxima = all.p + kWarpgroupRows * kMlaKeys * 2;
  all.sums = all.maxima + kMlaHalves * kWarpgroupRows * 4;
  all.p_full = all.sums + 2 * kMlaHalves * kWarpgroupRows * 4;
  l.q_full = all.p_full + 8 * kMlaHalves;
  l.q_empty = l.q_full + 8;
  l.k_full = l.q_empty + 8;
  l.k_empty = l.k_full + 8 * l.k_slots;
  l.v_full = l.k_empty + 8 * l.k_slots;
  l.v_empty = l.v_full + 8;
  l.tile_full = l.v_empty + 8;
  l.tile_empty = l.tile_full + 8 * kTileSlots;
  l.tiles = (l.tile_empty + 8 * kTileSlots + 15) / 16 * 16;
  l.bytes = all.bytes = l.tiles + kTileSlotBytes * kTileSlots;
  return all;
}

}  // namespace attune
