// SPDX-License-Identifier: Apache-2.0
// How backward_sm90_band computes all gradients of a narrow band. Each warpgroup walks along the
// band independently.
//
// Tiles have 64 rows or 64 keys. Tiles of keys are numbered so that tile t of rows sees tiles t, t
// + 1 and t + 2 of keys and no others. At place j a warpgroup multiplies tile j of keys with tiles
// j - 2, j - 1 and j of rows. Then dK and dV of key tile j are complete, and so is dQ of row tile j
// - 2. The two incomplete tiles of dQ stay in registers. The places are cut into one run per
// warpgroup. A run begins two places early, because dQ of its first rows needs them; it stores no
// gradients at these two places.
//
// | region, of each warpgroup | bytes             | written by | read by             |
// |---------------------------|-------------------|------------|---------------------|
// | rows                      | 4 * (q, dout)     | TMA; dQ    | wgmma; TMA          |
// | keys                      | 2 * (k, v)        | TMA; dK, dV | wgmma; TMA         |
// | ds                        | 64 * 128          | its warps  | wgmma               |
// | o                         | 3 * 16 * 128      | TMA        | a warp that makes sums |
// | sums: L2, delta           | 4 * 2 * 64 * 4    | a warp     | its warps           |
// | barriers                  | 8 each            | mbarrier   |                     |
#pragma once

#include "shared/layouts/prefill_sm90_layout.h"
#include "shared/visibility.h"

namespace attune {

constexpr int kBandTile = kWarpgroupRows;   // rows or keys of a tile
constexpr int kBandWidest = 2 * kBandTile;  // largest left + right that three tiles of keys cover
constexpr int kBandHeadDim =
    kPanelColumns;                // the largest: dK, dV and two tiles of dQ fill the registers
constexpr int kBandWalkers = 2;   // warpgroups per block that walk
constexpr int kBandRowSlots = 4;  // three in use, one being loaded
constexpr int kBandKeySlots = 2;
constexpr int kBandSumRows = 16;  // rows of o loaded together
constexpr int kBandSumSlots = 3;
constexpr int kBandFewestPlaces = 4;  // per walker, without the two early ones

struct BandLayout {
  int tile_bytes;               // one tile of one operand
  int rows, keys, ds, o, sums;  // offsets in a walker's tiles
  int walker_bytes;             // all tiles of one walker
  int barriers, barrier_bytes;  // after all tiles; bytes per walker
  int row_full, row_empty, sums_full, key_full, key_empty, o_full;  // offsets of barriers
  int bytes;
};

constexpr BandLayout backward_band_layout() {
  BandLayout l{};
  l.tile_bytes = kBandTile * kPanelRowBytes;
  l.keys = l.rows + 2 * kBandRowSlots * l.tile_bytes;
  l.ds = l.keys + 2 * kBandKeySlots * l.tile_bytes;
  l.o = l.ds + l.tile_bytes;
  l.sums = l.o + kBandSumSlots * kBandSumRows * kPanelRowBytes;
  l.walker_bytes = l.sums + (8 * kBandRowSlots * kBandTile + 1023) / 1024 * 1024;
  l.barriers = kBandWalkers * l.walker_bytes;
  l.row_empty = l.row_full + 8 * kBandRowSlots;
  l.sums_full = l.row_empty + 8 * kBandRowSlots;
  l.key_full = l.sums_full + 8 * kBandRowSlots;
  l.key_empty = l.key_full + 8 * kBandKeySlots;
  l.o_full = l.key_empty + 8 * kBandKeySlots;
  l.barrier_bytes = l.o_full + 8 * kBandSumSlots;
  l.bytes = l.barriers + kBandWalkers * l.barrier_bytes;
  return l;
}

// Registers per thread. Warps that do not walk have more registers than the producers of other
// kernels.
constexpr PrefillSm90Registers kBandRegisters{168, 224, 56, true};

// A row whose diagonal is at key d sees keys [d - left, d + right].
struct BandWidth {
  long long left;
  long long right;
};

template <class Rule>
ATTUNE_HOST_DEVICE constexpr BandWidth band_width(const Rule& rule) {
  return {rule.window_left, rule.mask != Mask::kNone ? 0 : rule.window_right};
}

template <class Rule>
ATTUNE_HOST_DEVICE constexpr bool is_narrow_band(const Rule& rule) {
  const BandWidth width = band_width(rule);
  return width.left >= 0 && width.right >= 0 && width.left + width.right <= kBandWidest;
}

ATTUNE_HOST_DEVICE constexpr long long band_floor(long long value) {  // floor of value / kBandTile
  return (value >= 0 ? value : value - (kBandTile - 1)) / kBandTile;
}

// True if three whole tiles of keys hold all keys that a tile of rows sees. Tiles begin at
// multiples of 64, and TMA stores no tile that begins before the first key.
template <class Rule, class Lengths>
ATTUNE_HOST_DEVICE constexpr bool band_fits(const Rule& rule, const Lengths& lengths) {
  const BandWidth width = band_width(rule);
  const long long diagonal = first_diagonal(rule, lengths);
  return band_floor(diagonal - width.left) * kBandTile + kBandWidest >= diagonal + width.right;
}

// The places of a head are [first, first + count). Tile j of keys begins at key first_key + 64 j.
struct BandPlaces {
  int first_key;
  int first;
  int count;
};

// Returns the places of a head: enough for all keys, and for dQ of all rows to be complete.
template <class Rule, class Lengths>
ATTUNE_HOST_DEVICE constexpr BandPlaces band_places(const Rule& rule, const Lengths& lengths) {
  const BandWidth width = band_width(rule);
  const long long diagonal = first_diagonal(rule, lengths);
  const long long key = band_floor(diagonal - width.left) * kBandTile;
  const long long first_of_keys = band_floor(-key),
                  last_of_keys = band_floor(lengths.seqlen_kv - 1 - key);
  const long long last_of_rows = band_floor(lengths.seqlen_q - 1) + 2;
  const long long first = first_of_keys < 0 ? first_of_keys : 0;
  const long long last = last_of_keys > last_of_rows ? last_of_keys : last_of_rows;
  return {static_cast<int>(key), static_cast<int>(first), static_cast<int>(last - first + 1)};
}

// Places [begin, end) of a head that a walker takes; it starts two places before them.
struct BandRun {
  int head;
  int batch;
  int begin;
  int end;
  int first_key;  // first key of tile 0
  int row_begin;  // tiles of rows that the run loads
  int row_end;
  int seqlen_kv;

  ATTUNE_HOST_DEVICE constexpr int first_place() const { return begin - 2; }
  ATTUNE_HOST_DEVICE constexpr int key(int place) const { return first_key + place * kBandTile; }
  ATTUNE_HOST_DEVICE constexpr bool has_row(int tile) const {
    return tile >= row_begin && tile < row_end;
  }
  // True if the run needs the keys of a place. Keys before the run's own are needed for dQ of its
  // rows.
  ATTUNE_HOST_DEVICE constexpr bool has_keys(int place) const {
    const bool some = key(place) >= 0 && key(place) < seqlen_kv;
    return some && (place >= begin || (place >= row_begin && place - 2 < row_end));
  }
};

// The range of places, counted over all heads, that one walker takes. With an even number of heads,
// the walkers of a block take the same places of two adjacent heads: with 64 columns, one fetch
// from memory brings both.
struct BandShare {
  int begin;
  int end;
};
ATTUNE_HOST_DEVICE constexpr bool band_has_pairs(int heads) { return heads % kBandWalkers == 0; }
ATTUNE_HOST_DEVICE constexpr BandShare band_share(int places, int heads, int blocks, int block,
                                                  int walker) {
  const bool pairs = band_has_pairs(heads);
  const int shares = pairs ? blocks : blocks * kBandWalkers;
  const int number = pairs ? block : block * kBandWalkers + walker;
  const int all = pairs ? places / kBandWalkers : places;
  const int share = all / shares, more = all - share * shares;
  const int begin = share * number + (number < more ? number : more);
  return {begin, begin + share + (number < more ? 1 : 0)};
}

// Returns the run that begins at place `begin` of a share. It ends where the share or the head
// ends.
template <class Rule, class Lengths>
ATTUNE_HOST_DEVICE constexpr BandRun band_run(const Rule& rule, const Lengths& lengths, int heads,
                                              const BandShare& share, int walker) {
  const BandPlaces places = band_places(rule, lengths);
  const int of_all = share.begin / places.count, from = share.begin - of_all * places.count;
  const int most = places.count - from, left = share.end - share.begin;
  BandRun run{};
  const int head = band_has_pairs(heads) ? of_all * kBandWalkers + walker : of_all;
  run.batch = head / heads;
  run.head = head - run.batch * heads;
  run.begin = places.first + from;
  run.end = run.begin + (left < most ? left : most);
  run.first_key = places.first_key;
  run.row_begin = run.first_place() > 0 ? run.first_place() : 0;
  const int rows = static_cast<int>(band_floor(lengths.seqlen_q - 1)) + 1;
  run.row_end = rows < run.end ? rows : run.end;
  run.seqlen_kv = static_cast<int>(lengths.seqlen_kv);
  return run;
}

// Returns the number of blocks to launch, with two warpgroups each: enough for kBandFewestPlaces
// places per warpgroup, at most one block per multiprocessor.
constexpr long long backward_band_blocks(long long places, long long multiprocessors) {
  const long long most =
      (places + kBandWalkers * kBandFewestPlaces - 1) / (kBandWalkers * kBandFewestPlaces);
  return most < multiprocessors ? most : multiprocessors;
}

}  // namespace attune
