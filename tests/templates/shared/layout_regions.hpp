// SPDX-License-Identifier: Apache-2.0
// Regions of the shared memory of CUDA kernels, for expect_regions. Offsets come from the layouts
// in templates/shared; the bytes that a kernel uses are counted here again, from its tiles.
#pragma once

#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_dq_warpgroup_layout.h"
#include "templates/shared/layouts/backward_sm80_layout.h"
#include "templates/shared/layouts/backward_unordered_layout.h"
#include "templates/shared/layouts/decode_layout.h"
#include "templates/shared/layouts/mla_sm90_layout.h"
#include "templates/shared/layouts/prefill_sm90_fp8_layout.h"
#include "tests/support/regions.hpp"

namespace attune::testing {

constexpr int64_t kSwizzled = 1024;  // alignment of tiles that TMA swizzles by 128 bytes

inline int64_t padded(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// Adds `count` regions of equal size, `stride` bytes apart.
inline void add_slots(std::vector<Region>& all, const std::string& name, int64_t begin,
                      int64_t count, int64_t stride, int64_t bytes, int64_t alignment) {
  for (int64_t i = 0; i < count; ++i)
    all.push_back({name + " " + std::to_string(i), begin + i * stride, bytes, alignment});
}

// Returns the bytes of a tile in swizzled panels. Rows of 8 bits may have panels of 32, 64 or 128
// bytes.
inline int64_t panel_bytes(int64_t rows, int64_t columns, int element_bytes = 2) {
  if (element_bytes == 2) return rows * padded(2 * columns, 128);
  return rows * padded(columns, columns <= 32 ? 32 : columns <= 64 ? 64 : 128);
}

inline std::vector<Region> regions_of(const PrefillSm90Config& c) {
  const PrefillSm90Layout l = prefill_sm90_layout(c);
  const int warpgroups = c.block_m / 64, slots = c.kv_ring > 0 ? c.kv_ring : c.kv_slots;
  const int v_slots = c.kv_ring > 0 ? 0 : c.kv_slots, given = c.transposes ? c.kv_slots : 0;
  int64_t k = panel_bytes(c.block_n, c.head_dim_qk, c.operand_bytes);
  const int64_t v = c.operand_bytes == 2 ? panel_bytes(c.block_n, c.head_dim_v)
                                         : int64_t{c.block_n} * c.head_dim_v;
  k = padded(c.kv_ring > 0 ? std::max(k, v) : k, 1024);
  std::vector<Region> all;
  add_slots(all, "q", l.q, warpgroups, l.q_bytes, panel_bytes(64, c.head_dim_qk, c.operand_bytes),
            kSwizzled);
  add_slots(all, "k", l.k, slots * c.k_parts, l.k_slot_bytes, k / c.k_parts, kSwizzled);
  add_slots(all, "v", l.v, v_slots, l.v_slot_bytes, padded(v, 1024), kSwizzled);
  add_slots(all, "o", l.o, c.o_staging ? warpgroups : 0, l.o_bytes, panel_bytes(64, c.head_dim_v),
            kSwizzled);
  add_slots(all, "given v", l.given_v, given, l.given_bytes,
            panel_bytes(c.block_n, c.head_dim_v, 1), kSwizzled);
  for (const auto& [name, begin, count] : {std::tuple{"q full", l.q_full, warpgroups},
                                           {"q empty", l.q_empty, warpgroups},
                                           {"k full", l.k_full, slots * c.k_parts},
                                           {"k empty", l.k_empty, slots * c.k_parts},
                                           {"v full", l.v_full, v_slots},
                                           {"v empty", l.v_empty, v_slots},
                                           {"given full", l.given_full, given},
                                           {"given empty", l.given_empty, given},
                                           {"tile full", l.tile_full, kTileSlots},
                                           {"tile empty", l.tile_empty, kTileSlots},
                                           {"stop", l.stop, given}})
    all.push_back({name, begin, 8 * count});
  all.push_back({"tiles", l.tiles, kTileSlotBytes * kTileSlots, 16});
  return all;
}

inline std::vector<Region> regions_of(const TransposeLayout& l, int head_dim_v) {
  return {{"in", 0, l.out > 0 ? panel_bytes(kTransposeKeys, head_dim_v, 1) : 0, kSwizzled},
          {"out", l.out, padded(padded(head_dim_v, 16) * kTransposeKeys, 1024), kSwizzled},
          {"barrier", l.barrier, 8}};
}

// Tiles of prefill_sm80 and backward_sm80: rows of whole 32 bytes.
inline int64_t row_bytes(int64_t columns, int element_bytes = 2) {
  return padded(columns * element_bytes, 32);
}

inline std::vector<Region> regions_of(const PrefillSm80Layout& l) {
  const int64_t k = l.block_n * row_bytes(l.head_dim_qk, l.element_bytes),
                v = l.block_n * row_bytes(l.head_dim_v, l.element_bytes),
                q = l.block_m * row_bytes(l.head_dim_qk, l.element_bytes);
  const int64_t ring = l.kv_slots * (l.share_kv ? std::max(k, v) : k + v);
  const bool through_ring = l.q_place == kQRegistersThroughRing;
  return {{"q", 0, through_ring ? 0 : q, 128},
          {"ring", prefill_sm80_ring_offset(l), through_ring ? std::max(q, ring) : ring, 128},
          {"state", prefill_sm80_state_offset(l), 16 * (1 + l.warps), 16}};
}

inline std::vector<Region> regions_of(const BackwardSm80Tile& t) {
  const BackwardSm80Layout l = backward_sm80_layout(t);
  const int64_t qk = row_bytes(t.head_dim_qk), v = row_bytes(t.head_dim_v);
  const int64_t sums = t.has_statistics ? 4 * t.step_rows : 0;
  std::vector<Region> all{{"first", 0, t.stay_rows * qk, 128},
                          {"second", l.second, t.has_second ? t.stay_rows * v : 0, 128},
                          {"state", l.state, 16 * (1 + t.warps), 16}};
  for (int slot = 0; slot < t.slots; ++slot) {
    const int64_t begin = l.ring + int64_t{slot} * l.slot_bytes;
    const std::string of_slot = " of slot " + std::to_string(slot);
    all.push_back({"first" + of_slot, begin, t.step_rows * qk, 128});
    all.push_back({"second" + of_slot, begin + l.slot_second, t.step_rows * v, 128});
    all.push_back({"l2" + of_slot, begin + l.slot_l2, sums, 16});
    all.push_back({"delta" + of_slot, begin + l.slot_delta, sums, 16});
  }
  return all;
}

inline std::vector<Region> regions_of(const BackwardSm90Tile& t) {
  const BackwardSm90Layout l = backward_sm90_layout(t);
  const BackwardSm90Ring &a = l.first_ring, &b = l.second_ring;
  const int warpgroups = t.stay_rows / 64, sums = t.has_statistics ? 4 * t.step_rows : 0;
  // A gradient of v leaves through the second tile, or else through the first.
  const int first_columns = t.has_second ? t.head_dim_qk : std::max(t.head_dim_qk, t.head_dim_v);
  std::vector<Region> all;
  add_slots(all, "first", l.first, warpgroups, l.first_bytes, panel_bytes(64, first_columns),
            kSwizzled);
  add_slots(all, "second", l.second, t.has_second ? warpgroups : 0, l.second_bytes,
            panel_bytes(64, t.head_dim_v), kSwizzled);
  add_slots(all, "first step", a.tiles, t.first_slots, a.slot_bytes,
            panel_bytes(t.step_rows, t.head_dim_qk), kSwizzled);
  add_slots(all, "second step", b.tiles, t.second_slots, b.slot_bytes,
            panel_bytes(t.step_rows, t.head_dim_v), kSwizzled);
  add_slots(all, "ds", l.ds, t.ds_slots, l.ds_bytes, int64_t{warpgroups} * t.step_rows * 128,
            kSwizzled);
  add_slots(all, "l2", a.statistics, t.first_slots, a.statistics_bytes, sums, 16);
  add_slots(all, "delta", b.statistics, t.second_slots, b.statistics_bytes, sums, 16);
  for (const auto& [name, begin, count] : {std::tuple{"first step full", a.full, t.first_slots},
                                           {"first step empty", a.empty, t.first_slots},
                                           {"second step full", b.full, t.second_slots},
                                           {"second step empty", b.empty, t.second_slots},
                                           {"first full", l.first_full, warpgroups},
                                           {"first empty", l.first_empty, warpgroups},
                                           {"second full", l.second_full, warpgroups},
                                           {"second empty", l.second_empty, warpgroups}})
    all.push_back({name, begin, 8 * count});
  return all;
}

// The kernel of all gradients.
inline std::vector<Region> one_kernel_regions_of(const BackwardSm90Tile& t) {
  const BackwardOneKernelLayout l = backward_one_kernel_layout(t);
  std::vector<Region> all = regions_of(t);
  for (const Region& r : std::vector<Region>{{"places", l.places, 16 * kOneKernelPlaces, 16},
                                             {"tiles", l.tiles, 16 * kOneKernelTileSlots, 16},
                                             {"ds full", l.ds_full, 8 * t.ds_slots},
                                             {"turn", l.turn, 8 * kOneKernelPlaces},
                                             {"added", l.added, 8 * kOneKernelPlaces},
                                             {"tile full", l.tile_full, 8 * kOneKernelTileSlots},
                                             {"tile empty", l.tile_empty, 8 * kOneKernelTileSlots}})
    all.push_back(r);
  return all;
}

// Also with a warpgroup for dQ.
inline std::vector<Region> dq_warpgroup_regions_of(const BackwardSm90Tile& t) {
  std::vector<Region> all = one_kernel_regions_of(t);
  all.push_back(
      {"ds empty", backward_dq_warpgroup_ds_empty(backward_one_kernel_layout(t)), 8 * t.ds_slots});
  return all;
}

// The kernel whose blocks add to dQ in any order. Staging holds a half of dQ in fp32, or dK.
inline std::vector<Region> unordered_regions_of(const BackwardSm90Tile& t) {
  const BackwardUnorderedLayout l =
      backward_unordered_layout(backward_one_kernel_layout(t), t.step_rows, t.head_dim_qk);
  // A step whose rows are not whole 64s makes dQ^T: 64 of its columns in each warpgroup.
  const int64_t columns = t.step_rows % 64 != 0 ? 128 : t.head_dim_qk;
  std::vector<Region> all = one_kernel_regions_of(t);
  all.push_back({"ds empty", l.ds_empty, 8 * kUnorderedDsSlots, 16});
  all.push_back({"dq full", l.full, 8 * kDqCopiers});
  all.push_back({"dq empty", l.empty, 8 * kDqCopiers});
  add_slots(all, "staging", l.staging, kDqCopiers, l.staging_bytes,
            padded(std::max<int64_t>(4 * t.step_rows * columns / 2, panel_bytes(64, t.head_dim_qk)),
                   1024),
            kSwizzled);
  return all;
}

inline std::vector<Region> regions_of(const BandLayout& l) {
  constexpr int64_t kTile = 64 * 128;
  std::vector<Region> all;
  for (int walker = 0; walker < kBandWalkers; ++walker) {
    const int64_t tiles = int64_t{walker} * l.walker_bytes,
                  barriers = l.barriers + int64_t{walker} * l.barrier_bytes;
    add_slots(all, "rows", tiles + l.rows, 2 * kBandRowSlots, kTile, kTile, kSwizzled);
    add_slots(all, "keys", tiles + l.keys, 2 * kBandKeySlots, kTile, kTile, kSwizzled);
    all.push_back({"ds", tiles + l.ds, kTile, kSwizzled});
    all.push_back({"o", tiles + l.o, kBandSumSlots * kBandSumRows * 128, kSwizzled});
    all.push_back({"sums", tiles + l.sums, kBandRowSlots * 2 * 64 * 4, 16});
    for (const auto& [name, begin, count] : {std::tuple{"row full", l.row_full, kBandRowSlots},
                                             {"row empty", l.row_empty, kBandRowSlots},
                                             {"sums full", l.sums_full, kBandRowSlots},
                                             {"key full", l.key_full, kBandKeySlots},
                                             {"key empty", l.key_empty, kBandKeySlots},
                                             {"o full", l.o_full, kBandSumSlots}})
      all.push_back({name, barriers + begin, 8 * count});
  }
  return all;
}

inline std::vector<Region> regions_of(const MlaSm90Layout& l, int head_dim_qk, int rows,
                                      bool has_lists) {
  const PrefillSm90Layout& p = l.parts;
  const bool keys_first = rows < 64;
  const int sums = keys_first ? 4 : 2;  // warps, or halves
  std::vector<Region> all{{"q", p.q, panel_bytes(rows, head_dim_qk), kSwizzled},
                          {"p", l.p, rows * 128, kSwizzled},
                          {"maxima", l.maxima, sums * rows * 4, 16},
                          {"sums", l.sums, (keys_first ? sums : 2 * sums) * rows * 4, 16},
                          {"p full", l.p_full, keys_first ? 0 : 16},
                          {"tiles", p.tiles, kTileSlotBytes * kTileSlots, 16},
                          {"listed", l.listed, has_lists ? 8 * p.k_slots : 0}};
  add_slots(all, "k", p.k, p.k_slots, p.k_slot_bytes,
            panel_bytes(kMlaKeys, keys_first ? 64 * kMlaSlotPanels : head_dim_qk), kSwizzled);
  for (const auto& [name, begin, count] : {std::tuple{"q full", p.q_full, 1},
                                           {"q empty", p.q_empty, 1},
                                           {"k full", p.k_full, p.k_slots},
                                           {"k empty", p.k_empty, p.k_slots},
                                           {"v full", p.v_full, 1},
                                           {"v empty", p.v_empty, 1},
                                           {"tile full", p.tile_full, kTileSlots},
                                           {"tile empty", p.tile_empty, kTileSlots}})
    all.push_back({name, begin, 8 * count});
  return all;
}

inline std::vector<Region> regions_of(const DecodeShared& l, int warps, int rings, int slots,
                                      int head_dim_qk, int rows, int exchange_bytes) {
  const int64_t q = decode_keeps_q(head_dim_qk, rows) ? rows * (2 * head_dim_qk + 16) : 0;
  return {{"rings", 0, int64_t{rings} * slots * l.slot_bytes, 16},
          {"joins", l.join_at, warps * 16 * 32 * 4, 16},
          {"largest scores and sums", l.stats_at, 2 * warps * 16 * 2 * 4, 16},
          {"words of warps", l.ticket_at, warps * 4, 4},
          {"barriers", l.barriers_at, 8 * warps * slots, 16},
          {"q", l.q_at, warps * q, 16},
          {"scores of wide heads", l.exchange_at, int64_t{warps} * exchange_bytes, 16}};
}

}  // namespace attune::testing
