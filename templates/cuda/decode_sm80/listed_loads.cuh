// SPDX-License-Identifier: Apache-2.0
// DecodeLoads for lists of keys: loads the keys that a row's list names, by cp.async. The entry of
// a lane's key is read three tiles ahead and its page two tiles ahead, so that no copy waits for
// them.
#pragma once

#include "cuda/decode_sm80/decode_rings.cuh"
#include "cuda/decode_sm80/listed_keys.cuh"
#include "cuda/parts/listed_places.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/l2_policy.cuh"

namespace attune {

static_assert(kLoads == 0, "keys of lists come by cp.async");

class DecodeLoads {
 public:
  __device__ __forceinline__ DecodeLoads(const KernelParts& parts, const KeyListArgs& lists,
                                         const GroupFactorArgs& groups, const DecodeMaps&,
                                         LineRequests& requests, const DecodeRange& range,
                                         unsigned shared)
      : parts_(parts),
        places_(parts, lists),
        requests_(requests),
        range_(range),
        ring_(shared + ring_index() * (kKvSlots * kSlotBytes)),
        factors_(shared, ring_index()),
        groups_(groups, shared, ring_index()),
        keys_(shared, ring_index()),
        policy_(evict_normal_policy()) {}

  // Begins with the first tile of `walk`.
  __device__ __forceinline__ void start(const DecodeWalk& walk) {
    walk_ = walk;
    tile_ = end_ = 0;
    more_ = true;
    advance();
  }
  // The kernel does not start early.
  __device__ __forceinline__ void prefetch() const {}
  __device__ __forceinline__ void look_again() const {}

  __device__ __forceinline__ unsigned slot(int number) const { return ring_ + number * kSlotBytes; }
  __device__ __forceinline__ FactorsAddress factors(int number) const {
    return factors_.slot(number);
  }
  __device__ __forceinline__ GroupsAddress groups(int number) const { return groups_.slot(number); }
  __device__ __forceinline__ KeysAddress keys(int number) const { return keys_.slot(number); }
  __device__ __forceinline__ unsigned barrier(int) const { return 0; }
  __device__ __forceinline__ unsigned empty_barrier(int) const { return 0; }

  // Requests the next tile, if there is one, into a slot that no warp reads any more.
  __device__ __forceinline__ void issue(int number, unsigned = 0) {
    if (more_) {
      copy_of<KTile, KeyColumns>(slot(number), parts_.base.k);
      if constexpr (!kColumns.values_in_keys)
        copy_of<VTile, ValueColumns>(slot(number) + kValuesAt, parts_.base.v);
      factors_.copy(number, parts_.scales, places_.inside(page_), places_.row_in_page(key_),
                    places_.head(), key_ >= 0, 0);
      groups_.copy(number, places_.inside(page_), places_.row_in_page(key_), key_ >= 0, 0);
      keys_.store(number, key_);
      tile_ += kTeam;
      advance();
    }
    cp_async_commit();
  }

 private:
  // Moves to the next tile, if there is one, and to the keys of its entries.
  __device__ __forceinline__ void advance() {
    if (tile_ < end_) {
      page_ = page_ahead_;
      key_ = key_ahead_;
      key_ahead_ = key_beyond_;
      page_ahead_ = places_.page_of(key_ahead_);
      key_beyond_ = key_of(tile_ + 2 * kTeam);
      return;
    }
    while (tile_ >= end_) {
      DecodePiece piece;
      more_ = walk_.next(
          range_, requests_.count(), [&](int number) { return tiles_of(requests_[number]); },
          &piece);
      if (!more_) return;
      const DecodeItem item(parts_, requests_, piece);
      if (!item.has_tiles()) continue;
      tile_ = piece.begin + team_warp();
      end_ = piece.end;
      take_row(item);
    }
    key_ = key_of(tile_);
    key_ahead_ = key_of(tile_ + kTeam);
    key_beyond_ = key_of(tile_ + 2 * kTeam);
    page_ = places_.page_of(key_);
    page_ahead_ = places_.page_of(key_ahead_);
  }

  __device__ __forceinline__ void take_row(const DecodeItem& item) {
    const ListedRow& row = item.listed;
    const bool has_slot = !kHasPages && !kHasKeyBegins && !kArePlaces;
    places_.take({row.request, row.whole.length, row.whole.first_key,
                  has_slot ? requests_.slot(row.request) : 0, row.list, item.request.length,
                  item.kv_head});
    groups_.take(item.kv_head);
  }
  // Returns the key of this lane's entry of the tile; -1 if there is none.
  __device__ __forceinline__ int key_of(int tile) const {
    return tile >= end_ ? -1 : places_.key_of(tile * kKeys + static_cast<int>(threadIdx.x) % kKeys);
  }

  // The place of a tile's key, which one lane knows.
  struct Place {
    int page, row;
    bool exists;
  };
  __device__ __forceinline__ Place place_in_lane(int page, int lane) const {
    const int key = __shfl_sync(~0u, key_, lane);
    return {__shfl_sync(~0u, page, lane), places_.row_in_page(key), key >= 0};
  }
  __device__ __forceinline__ const char* row_of(const OperandView& view, const Place& at) const {
    return static_cast<const char*>(view.data) +
           kKvBytes * (at.page * view.batch_stride + at.row * view.row_stride +
                       places_.head() * view.head_stride);
  }

  // Copies lines of 128 bytes with eight lanes each, or else chunks of 16 bytes. Rows without a key
  // become zero.
  template <class Tile, class Columns>
  __device__ __forceinline__ void copy_of(unsigned to, const OperandView& view) const {
    const int own = places_.inside(page_), lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (Tile::kHasPanels && !kGroupFactors) {
#pragma unroll 2
      for (int first = 0; first < kKeys; first += 4) {
        const int row = first + lane / 8;
        const Place at = place_in_lane(own, row);
        const char* const from = row_of(view, at);
        const unsigned line = to + Tile::place(row, lane % 8);
#pragma unroll
        for (int panel = 0; panel < Tile::kCachedBytes / 128; ++panel)
          cp_async_16<128>(line + panel * (kKeys * 128), Columns::at(from, lane % 8, panel),
                           at.exists && Columns::has(lane % 8, panel) ? 16 : 0, policy_);
      }
    } else {
      constexpr int kChunks = Tile::kCachedBytes / 16;
#pragma unroll 4
      for (int i = 0; i < kKeys * kChunks; i += 32) {
        const int chunk = i + lane, row = chunk / kChunks;
        const Place at = place_in_lane(own, row % 32);
        if (kKeys * kChunks % 32 != 0 && row >= kKeys) continue;
        const int column = chunk % kChunks;
        cp_async_16<0>(to + Tile::place(row, column), Columns::at(row_of(view, at), column),
                       at.exists && Columns::has(column) ? 16 : 0, policy_);
      }
    }
  }

  const KernelParts& parts_;
  ListedPlaces places_;
  LineRequests& requests_;
  const DecodeRange& range_;
  DecodeWalk walk_;
  const unsigned ring_;
  const KeyFactorRing factors_;
  GroupRing groups_;
  const ListedKeyRing keys_;
  const L2Policy policy_;
  int tile_, end_;  // the next tile, and the end of the piece
  // The key of this lane in the next tile and in the two after it, and unchecked pages.
  int key_, key_ahead_, key_beyond_, page_, page_ahead_;
  bool more_;
};

}  // namespace attune
