// SPDX-License-Identifier: Apache-2.0
// Loads tiles for a warp of a decode kernel, ahead of its work: every kTeam-th tile of each of the
// team's pieces, into the slots of the warp's ring. The page ids of a tile are read when the tile
// two before it is requested, so that no copy waits for them.
#pragma once

#include "cuda/decode_sm80/decode_rings.cuh"
#include "cuda/decode_sm80/nibble_copies.cuh"  // where kGroupFactors, else none/
#include "cuda/ptx/l2_policy.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace attune {

// The number of keys of a tile that each warp of a ring loads.
constexpr int kShare = kTogether ? kKeys / kHeads : kKeys;
static_assert(!kTogether || (kHeads > 1 && kKeys % kHeads == 0), "warps of a ring share its keys");

class DecodeLoads {
 public:
  template <class Lists>
  __device__ __forceinline__ DecodeLoads(const KernelParts& parts, const Lists&,
                                         const GroupFactorArgs& groups, const DecodeMaps& maps,
                                         LineRequests& requests, const DecodeRange& range,
                                         unsigned shared)
      : parts_(parts),
        requests_(requests),
        maps_(maps),
        range_(range),
        ring_(shared + ring_index() * (kKvSlots * kSlotBytes)),
        factors_(shared, ring_index()),
        groups_(groups, shared, ring_index()),
        nibbles_(parts.base),
        barriers_(shared + kShared.barriers_at + ring_index() * (kBarriersOfRing * 8)),
        // If several items read the same keys, these keys should stay in L2.
        policy_(parts.base.seqlen_q * kGqaRatio > kRows ? evict_normal_policy()
                                                        : evict_first_policy()) {}

  // Begins with the first tile of `walk`.
  __device__ __forceinline__ void start(const DecodeWalk& walk) {
    walk_ = walk;
    tile_ = end_ = 0;
    more_ = true;
    advance<true>();
  }

  // Prefetches into L2 the tiles of the first piece that the first calls of issue() will load.
  __device__ __forceinline__ void prefetch() const {
    if (!more_) return;
#pragma unroll
    for (int i = 0; i < kTilesAhead; ++i) {
      const int tile = tile_ + i * kTeam;
      if (tile >= end_) return;
      const int page = kHasPages ? page_of<true>(tile) : page_;
      if constexpr (kSwizzled)
        prefetch_boxes(tile, page);
      else
        prefetch_rows(tile, page);
    }
  }

  // Rereads the page ids of the first tiles. The tiles have not changed since start().
  __device__ __forceinline__ void look_again() {
    if (more_) find_pages<true>();
  }

  // `number` is that of a slot of the ring, here and below.
  __device__ __forceinline__ unsigned slot(int number) const { return ring_ + number * kSlotBytes; }
  // Returns the address of the factors of the slot's keys.
  __device__ __forceinline__ FactorsAddress factors(int number) const {
    return factors_.slot(number);
  }
  // Returns the address of the factors of the groups of columns of the slot's keys.
  __device__ __forceinline__ GroupsAddress groups(int number) const { return groups_.slot(number); }
  __device__ __forceinline__ KeysAddress keys(int) const { return {}; }
  __device__ __forceinline__ unsigned barrier(int number) const { return barriers_ + number * 8; }
  // Returns the barrier that completes when all warps of the ring have read the slot. Used only
  // with kTogether.
  __device__ __forceinline__ unsigned empty_barrier(int number) const {
    return barrier(kKvSlots + number);
  }

  // Requests the next tile, if there is one, into a slot that no warp reads any more. `round` is
  // the number of times that the slot was requested before.
  __device__ __forceinline__ void issue(int number, unsigned round = 0) {
    if (more_) {
      // Loaded before the copies are issued, so that little time is left to wait for it.
      const int beyond = kHasPages ? page_of<false>(tile_ + 2 * kTeam) : 0;
      if constexpr (kLoads == 0) copy_tile(slot(number));
      if constexpr (kLoads == 1) copy_rows(slot(number), barrier(number));
      if constexpr (kLoads == 2) copy_boxes(slot(number), barrier(number));
      copy_factors(number);
      if constexpr (kTogether) {
        mbarrier_wait(empty_barrier(number), (round & 1) ^ 1, "a slot of the cache");
        copy_share(slot(number), barrier(number));
      }
      tile_ += kTeam;
      advance<false>(beyond);
    }
    if constexpr (kLoads == 0) cp_async_commit();
  }

 private:
  // Moves to the next tile, if there is one, and to the page of its keys. `beyond`: the unchecked
  // page id of the tile after that, if it belongs to the same piece.
  template <bool kThroughL2>
  __device__ __forceinline__ void advance(int beyond = 0) {
    if (tile_ < end_) {
      if constexpr (kHasPages) {
        page_ = ahead_;
        ahead_ = beyond;
      }
      return;
    }
    while (tile_ >= end_) {
      DecodePiece piece;
      more_ = walk_.next(
          range_, parts_.base.batch, [&](int number) { return tiles_of(requests_[number]); },
          &piece);
      if (!more_) return;
      const DecodeItem item(parts_, requests_, piece);
      if (!item.has_tiles()) continue;
      tile_ = piece.begin + team_warp();
      end_ = piece.end;
      request_ = piece.request;
      length_ = item.request.length;
      first_key_ = item.request.first_key;
      head_ = item.kv_head;
      groups_.take(head_);
      nibbles_.take(head_);
    }
    find_pages<kThroughL2>();
  }
  template <bool kThroughL2>
  __device__ __forceinline__ void find_pages() {
    if constexpr (kHasPages) {
      page_ = page_of<kThroughL2>(tile_);
      ahead_ = page_of<kThroughL2>(tile_ + kTeam);
    } else {
      page_ = requests_.slot(request_);
    }
  }

  // Returns the page id of this lane's key, own_key(), of the tile. The id is not checked. A key
  // past the end has the page of the last key. Loads go through L1, which then also has the ids of
  // the next tiles. kThroughL2 bypasses L1, for ids that the previous grid may still write.
  template <bool kThroughL2>
  __device__ __forceinline__ int page_of(int tile) const {
    const int key = min(tile * kKeys + own_key(), length_ - 1);
    const int* const row = parts_.cache.page_table + request_ * parts_.cache.page_table_stride;
    return list_word<kThroughL2>(row + static_cast<unsigned>(key) / kPageRows);
  }
  // Returns the key of a tile whose page this lane finds. With kTogether it is a key of the warp's
  // share.
  static __device__ __forceinline__ int own_key() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return kTogether ? head_in_gang() * kShare + lane % kShare : lane % kKeys;
  }
  // Returns `page`, or 0 if `page` is out of range, so that no load leaves the cache.
  __device__ __forceinline__ int inside(int page) const {
    return static_cast<unsigned>(page) < static_cast<unsigned>(parts_.cache.num_pages) ? page : 0;
  }

  __device__ __forceinline__ int row_in_page(int key) const {
    return kHasPages       ? static_cast<int>(static_cast<unsigned>(key) % kPageRows)
           : kHasKeyBegins ? first_key_ + key
                           : key;
  }
  __device__ __forceinline__ const char* row_of(const OperandView& view, int page, int key) const {
    const int row = row_in_page(key);
    return static_cast<const char*>(view.data) +
           kKvBytes * (page * view.batch_stride + row * view.row_stride + head_ * view.head_stride);
  }

  // Copies lines of 128 bytes with eight lanes each. A lane has the same 16 bytes of each panel of
  // a row. Rows after the last key become zero.
  template <class Tile, class Columns>
  __device__ __forceinline__ void copy_lines_of(unsigned to, const OperandView& view) const {
    const int own = inside(page_), lane = static_cast<int>(threadIdx.x) % 32, chunk = lane % 8;
#pragma unroll 2
    for (int first = 0; first < kKeys; first += 4) {
      const int row = first + lane / 8, page = __shfl_sync(~0u, own, row),
                key = tile_ * kKeys + row;
      const char* const from = row_of(view, page, min(key, length_ - 1));
      const unsigned line = to + Tile::place(row, chunk);
#pragma unroll
      for (int panel = 0; panel < Tile::kCachedBytes / 128; ++panel)
        cp_async_16<128>(line + panel * (kKeys * 128), Columns::at(from, chunk, panel),
                         key < length_ && Columns::has(chunk, panel) ? 16 : 0, policy_);
    }
  }
  // Copies rows that are not whole lines, in chunks of 16 bytes. Rows after the last key become
  // zero.
  template <class Tile, class Columns>
  __device__ __forceinline__ void copy_chunks_of(unsigned to, const OperandView& view) const {
    constexpr int kChunks = Tile::kCachedBytes / 16;
    const int own = inside(page_);
#pragma unroll 4  // the 64-bit addresses of all chunks would not fit registers
    for (int i = 0; i < kKeys * kChunks; i += 32) {
      const int chunk = i + static_cast<int>(threadIdx.x) % 32, row = chunk / kChunks;
      const int page = __shfl_sync(~0u, own, row % 32);
      if (kKeys * kChunks % 32 != 0 && row >= kKeys) continue;
      const int key = tile_ * kKeys + row, column = chunk % kChunks;
      const char* const from = Columns::at(row_of(view, page, min(key, length_ - 1)), column);
      cp_async_16<0>(to + Tile::place(row, column), from,
                     key < length_ && Columns::has(column) ? 16 : 0, policy_);
    }
  }
  template <class Tile, class Columns>
  __device__ __forceinline__ void copy_of(unsigned to, const OperandView& view) const {
    if constexpr (Tile::kHasPanels)
      copy_lines_of<Tile, Columns>(to, view);
    else
      copy_chunks_of<Tile, Columns>(to, view);
  }
  __device__ __forceinline__ void copy_chunks(unsigned slot) const {
    copy_of<KTile, KeyColumns>(slot, parts_.base.k);
    if constexpr (!kColumns.values_in_keys)
      copy_of<VTile, ValueColumns>(slot + kValuesAt, parts_.base.v);
  }

  __device__ __forceinline__ void copy_tile(unsigned slot) const {
    if constexpr (kGroupFactors) {
      const int keys = length_ - tile_ * kKeys;
      const int own = min(static_cast<int>(threadIdx.x) % kKeys, keys - 1);
      nibbles_.copy(slot, inside(page_), row_in_page(tile_ * kKeys + own), keys, policy_);
    } else {
      copy_chunks(slot);
    }
  }

  // Copies the factors of the tile's keys, with one key per lane.
  __device__ __forceinline__ void copy_factors(int number) const {
    const int lane = threadIdx.x % 32, key = tile_ * kKeys + lane % kKeys;
    factors_.copy(number, parts_.scales, inside(page_), row_in_page(key), head_, key < length_,
                  barrier(number));
    groups_.copy(number, inside(page_), row_in_page(key), key < length_, barrier(number));
  }
  // Copies each row with one bulk copy. If a tile has 16 keys, lanes 16 to 31 load rows of V.
  __device__ __forceinline__ void copy_rows(unsigned slot, unsigned barrier) const {
    const int lane = threadIdx.x % 32, row = lane % kKeys,
              keys = min(kKeys, length_ - tile_ * kKeys);
    if (lane == 0)
      mbarrier_arrive_expect_tx(barrier, keys * (KTile::kCachedBytes + VTile::kCachedBytes));
    __syncwarp();
    if (row >= keys) return;
    const int key = tile_ * kKeys + row, page = inside(page_);
    if (kKeys == 32 || lane < kKeys)
      bulk_load(slot + row * KTile::kRowBytes, KeyColumns::at(row_of(parts_.base.k, page, key), 0),
                KTile::kCachedBytes, barrier, policy_);
    if (kKeys == 32 || lane >= kKeys)
      bulk_load(slot + kValuesAt + row * VTile::kRowBytes,
                ValueColumns::at(row_of(parts_.base.v, page, key), 0), VTile::kCachedBytes, barrier,
                policy_);
  }
  __device__ __forceinline__ void prefetch_rows(int tile, int page) const {
    const int lane = threadIdx.x % 32, key = tile * kKeys + lane % kKeys;
    // If lists change while they are read, head_ may be a head that does not exist. TMA boxes check
    // bounds, bulk prefetches do not.
    const bool is_head =
        static_cast<unsigned>(head_) < static_cast<unsigned>(parts_.base.num_heads_kv);
    if (key >= length_ || !is_head) return;
    if (kKeys == 32 || lane < kKeys)
      prefetch_share<KeyColumns>(row_of(parts_.base.k, inside(page), key));
    if (!kColumns.values_in_keys && (kKeys == 32 || lane >= kKeys))
      prefetch_share<ValueColumns>(row_of(parts_.base.v, inside(page), key));
  }
  template <class Columns>
  __device__ __forceinline__ void prefetch_share(const char* row) const {
    const int columns = Columns::present();
    if (columns > 0) bulk_prefetch(Columns::at(row, 0), columns * kKvBits / 8, policy_);
  }

  // Returns the origin of a box. The box has one head and the keys of a tile, which lie in one
  // page. With kTogether it has one key and all heads of the gang.
  __device__ __forceinline__ TensorCoord box_at(int key, int page) const {
    return {0, row_in_page(key), kTogether ? head_ - head_in_gang() : head_, inside(page)};
  }
  __device__ __forceinline__ void copy_boxes(unsigned slot, unsigned barrier) const {
    if (threadIdx.x % 32 != 0) return;
    const TensorCoord at = box_at(tile_ * kKeys, page_);
    mbarrier_arrive_expect_tx(barrier, kSlotBytes);
    copy_panels<KTile, KeyColumns>(slot, maps_.k, barrier, at);
    copy_panels<VTile, ValueColumns>(slot + kValuesAt, maps_.v, barrier, at);
  }
  // Loads the warp's share of the tile, for kTogether. A lane loads one key.
  __device__ __forceinline__ void copy_share(unsigned slot, unsigned barrier) const {
    const int lane = threadIdx.x % 32, first = tile_ * kKeys + head_in_gang() * kShare;
    const int keys = max(min(kShare, length_ - first), 0);
    if (lane == 0)
      mbarrier_arrive_expect_tx(barrier,
                                keys * kHeads * (KTile::kCachedBytes + VTile::kCachedBytes));
    __syncwarp();
    if (lane >= keys) return;
    const TensorCoord at = box_at(first + lane, page_);
    copy_panels<KTile, KeyColumns>(slot + own_key() * KTile::kRowBytes, maps_.k, barrier, at);
    copy_panels<VTile, ValueColumns>(slot + kValuesAt + own_key() * VTile::kRowBytes, maps_.v,
                                     barrier, at);
  }
  template <class Tile, class Columns>
  __device__ __forceinline__ void copy_panels(unsigned to, const TensorMap* map, unsigned barrier,
                                              TensorCoord at) const {
#pragma unroll
    for (int column = 0; column < Columns::kCount; column += kPanelColumns) {
      at.head_dim = Columns::in_head(column) * kKvBits / (8 * kKvBytes);
      tma_load(to + column / kPanelColumns * (kKeys * Tile::kRowBytes), *map, barrier, at, policy_);
    }
  }
  __device__ __forceinline__ void prefetch_boxes(int tile, int page) const {
    const int key = tile * kKeys + (kTogether ? own_key() : 0);
    if (threadIdx.x % 32 >= (kTogether ? kShare : 1) || key >= length_) return;
    const TensorCoord at = box_at(key, page);
    prefetch_panels<KeyColumns>(maps_.k, at);
    prefetch_panels<ValueColumns>(maps_.v, at);
  }
  template <class Columns>
  __device__ __forceinline__ void prefetch_panels(const TensorMap* map, TensorCoord at) const {
#pragma unroll
    for (int column = 0; column < Columns::kCount; column += kPanelColumns) {
      at.head_dim = Columns::in_head(column) * kKvBits / (8 * kKvBytes);
      tma_prefetch(*map, at, policy_);
    }
  }

  const KernelParts& parts_;
  const DecodeMaps& maps_;
  LineRequests& requests_;
  const DecodeRange& range_;
  DecodeWalk walk_;
  const unsigned ring_, barriers_;
  const KeyFactorRing factors_;
  GroupRing groups_;
  NibbleCopies nibbles_;
  const L2Policy policy_;
  int tile_, end_;  // the next tile, and the end of the piece
  int request_, length_, first_key_, head_;
  int page_, ahead_;  // unchecked page ids of the next tile and of the tile after it
  bool more_;
};

}  // namespace attune
