// SPDX-License-Identifier: Apache-2.0
// What a warp of a decode kernel reads of the cache, ahead of its work: every kTeam-th tile of each of the team's pieces, into the slots
// of its ring. The ids of a tile's pages are read when the tile before is asked for, so that no copy waits for them.
#pragma once

#include "cuda/attention/decode_items.cuh"
#include "cuda/attention/decode_slots.cuh"
#include "cuda/ptx/bulk_load.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

// The tensor maps of a kernel whose keys come in boxes.
struct DecodeMaps {
  const TensorMap* k = nullptr;
  const TensorMap* v = nullptr;
};

class DecodeLoads {
 public:
  __device__ __forceinline__ DecodeLoads(const KernelParts& parts, const DecodeMaps& maps,
                                         CacheRequests& requests, const DecodeRange& range,
                                         const DecodeWalk& walk, unsigned shared)
      : parts_(parts),
        requests_(requests),
        maps_(maps),
        range_(range),
        walk_(walk),
        ring_(shared + threadIdx.x / 32 * (kStages * kSlotBytes)),
        barriers_(shared + kShared.barriers_at + threadIdx.x / 32 * (kStages * 8)) {
    tile_ = end_ = 0;
    more_ = true;
    advance();
  }

  __device__ __forceinline__ unsigned slot(int stage) const { return ring_ + stage * kSlotBytes; }
  __device__ __forceinline__ unsigned barrier(int stage) const { return barriers_ + stage * 8; }

  // Asks for the next tile, if there is one, into a slot that nobody reads any more.
  __device__ __forceinline__ void issue(int stage) {
    if (more_) {
      if constexpr (kLoads == 0) copy_chunks(slot(stage));
      if constexpr (kLoads == 1) copy_rows(slot(stage), barrier(stage));
      if constexpr (kLoads == 2) copy_boxes(slot(stage), barrier(stage));
      tile_ += kTeam;
      advance();
    }
    if constexpr (kLoads == 0) cp_async_commit();
  }

 private:
  // To the next tile that there is, and to the page of its keys.
  __device__ __forceinline__ void advance() {
    while (tile_ >= end_) {
      DecodePiece piece;
      more_ = walk_.next(
          range_, parts_.base.batch, [&](int number) { return tiles_of(requests_[number]); },
          &piece);
      if (!more_) return;
      const DecodeItem item(parts_, requests_, piece);
      if (item.rows <= 0) continue;
      tile_ = piece.begin + team_warp();
      end_ = piece.end;
      request_ = piece.request;
      length_ = item.request.length;
      first_key_ = item.request.first_key;
      head_ = item.kv_head;
      if constexpr (!kHasPages) page_ = inside(requests_.slot(request_));
    }
    if constexpr (kHasPages) find_page();
  }

  // Of each lane the page of a key: lane % kKeys of the tile. Behind the last key the last one's.
  __device__ __forceinline__ void find_page() {
    const int key = min(tile_ * kKeys + static_cast<int>(threadIdx.x) % kKeys, length_ - 1);
    const int* const row = parts_.cache.page_table + request_ * parts_.cache.page_table_stride;
    page_ = inside(__ldg(row + key / kPageRows));
  }
  // An id that the cache does not have would be read outside of it.
  __device__ __forceinline__ int inside(int page) const {
    return static_cast<unsigned>(page) < static_cast<unsigned>(parts_.cache.num_pages) ? page : 0;
  }

  __device__ __forceinline__ const char* row_of(const OperandView& view, int page, int key) const {
    const int row = kHasPages ? key % kPageRows : kHasKeyBegins ? first_key_ + key : key;
    return static_cast<const char*>(view.data) +
           kKvBytes * (page * view.batch_stride + row * view.row_stride + head_ * view.head_stride);
  }

  // Rows behind the last key become zero.
  template <class Tile, int kHeadDim>
  __device__ __forceinline__ void copy_chunks_of(unsigned to, const OperandView& view) const {
    constexpr int kRowBytes = kHeadDim * kKvBytes, kChunks = kRowBytes / 16;
#pragma unroll 4  // 64-bit addresses of all would not fit registers
    for (int i = 0; i < kKeys * kChunks; i += 32) {
      const int chunk = i + static_cast<int>(threadIdx.x) % 32, row = chunk / kChunks;
      const int page = __shfl_sync(~0u, page_, row % 32);
      if (kKeys * kChunks % 32 != 0 && row >= kKeys) continue;
      const int key = tile_ * kKeys + row, column = chunk % kChunks;
      const char* const from = row_of(view, page, min(key, length_ - 1)) + column * 16;
      cp_async_16<kRowBytes % 128 == 0 ? 128 : 0>(to + row * Tile::kRowBytes + column * 16, from,
                                                  key < length_ ? 16 : 0);
    }
  }
  __device__ __forceinline__ void copy_chunks(unsigned slot) const {
    copy_chunks_of<KTile, kHeadDimQk>(slot, parts_.base.k);
    copy_chunks_of<VTile, kHeadDimV>(slot + KTile::kBytes, parts_.base.v);
  }

  // Lanes of the upper half have rows of V where a tile has 16.
  __device__ __forceinline__ void copy_rows(unsigned slot, unsigned barrier) const {
    const int lane = threadIdx.x % 32, row = lane % kKeys,
              keys = min(kKeys, length_ - tile_ * kKeys);
    if (lane == 0) mbarrier_arrive_expect_tx(barrier, keys * kKvBytes * (kHeadDimQk + kHeadDimV));
    __syncwarp();
    if (row >= keys) return;
    const int key = tile_ * kKeys + row;
    if (kKeys == 32 || lane < kKeys)
      bulk_load(slot + row * KTile::kRowBytes, row_of(parts_.base.k, page_, key),
                kHeadDimQk * kKvBytes, barrier);
    if (kKeys == 32 || lane >= kKeys)
      bulk_load(slot + KTile::kBytes + row * VTile::kRowBytes, row_of(parts_.base.v, page_, key),
                kHeadDimV * kKvBytes, barrier);
  }

  // A page holds whole tiles.
  __device__ __forceinline__ void copy_boxes(unsigned slot, unsigned barrier) const {
    if (threadIdx.x % 32 != 0) return;
    const int key = tile_ * kKeys;
    const int row = kHasPages ? key % kPageRows : kHasKeyBegins ? first_key_ + key : key;
    const TensorCoord at{0, row, head_, page_};
    mbarrier_arrive_expect_tx(barrier, kSlotBytes);
    copy_panels<kHeadDimQk>(slot, maps_.k, barrier, at);
    copy_panels<kHeadDimV>(slot + KTile::kBytes, maps_.v, barrier, at);
  }
  template <int kHeadDim>
  __device__ __forceinline__ static void copy_panels(unsigned to, const TensorMap* map,
                                                     unsigned barrier, TensorCoord at) {
#pragma unroll
    for (int column = 0; column < kHeadDim; column += kPanelColumns) {
      at.head_dim = column;
      tma_load(to + column / kPanelColumns * (kKeys * 128), *map, barrier, at);
    }
  }

  const KernelParts& parts_;
  const DecodeMaps& maps_;
  CacheRequests& requests_;
  const DecodeRange& range_;
  DecodeWalk walk_;
  const unsigned ring_, barriers_;
  int tile_, end_;  // of the piece
  int request_, length_, first_key_, head_, page_;
  bool more_;
};

}  // namespace attune
