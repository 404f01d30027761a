// SPDX-License-Identifier: Apache-2.0
// Copies rows of codes of 4 bits by cp.async. A row has few chunks of 16 bytes, so addresses would
// take more instructions than products. Each lane computes the address of one row, and lanes that
// copy its chunks get it by a shuffle: with 16 keys a tile, lanes 16 to 31 have rows of V.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/l2_policy.cuh"
#include "shared/attention_args.h"

namespace attune {

// True if O leaves registers for addresses and factors that are used again.
constexpr bool kHasRegisters = kHeadDimQk <= 192 && kHeadDimV <= 128;

// The rows of one head, of bytes.
struct HeadRows {
  const char* first;
  long long page_stride, row_stride;

  __device__ __forceinline__ const char* row(int page, int row) const {
    return first + page * page_stride + row * row_stride;
  }
};
__device__ __forceinline__ HeadRows rows_of_head(const OperandView& view, int kv_head) {
  return {static_cast<const char*>(view.data) + kv_head * view.head_stride, view.batch_stride,
          view.row_stride};
}
// Returns the rows of `k`, or those of `v` for lanes 16 to 31.
__device__ __forceinline__ HeadRows rows_of_lane(const OperandView& k, const OperandView& v,
                                                 int kv_head) {
  const HeadRows of_k = rows_of_head(k, kv_head), of_v = rows_of_head(v, kv_head);
  const bool is_v = threadIdx.x % 32 >= 16;
  return {is_v ? of_v.first : of_k.first, is_v ? of_v.page_stride : of_k.page_stride,
          is_v ? of_v.row_stride : of_k.row_stride};
}

// The chunks of a tile's rows.
template <class Tile>
__device__ __forceinline__ void copy_nibble_rows(unsigned to, const char* own, int first_lane,
                                                 int keys, L2Policy policy) {
  constexpr int kChunks = Tile::kCachedBytes / 16;
  const auto address = reinterpret_cast<unsigned long long>(own);
  const auto low = static_cast<unsigned>(address), high = static_cast<unsigned>(address >> 32);
#pragma unroll
  for (int i = 0; i < kKeys * kChunks; i += 32) {
    const int at = i + static_cast<int>(threadIdx.x) % 32, row = at / kChunks;
    const int lane = first_lane + row % kKeys;
    const auto of_row = static_cast<unsigned long long>(__shfl_sync(~0u, high, lane)) << 32 |
                        __shfl_sync(~0u, low, lane);
    if (kKeys * kChunks % 32 != 0 && row >= kKeys) continue;
    cp_async_16<0>(to + Tile::place(row, at % kChunks),
                   reinterpret_cast<const char*>(of_row) + at % kChunks * 16, row < keys ? 16 : 0,
                   policy);
  }
}

// The rows of K and V, or of their factors, of one head after another.
class RowsOfHeads {
 public:
  __device__ __forceinline__ RowsOfHeads(const OperandView& k, const OperandView& v)
      : k_(k), v_(v) {}
  __device__ __forceinline__ void take(int kv_head) {
    kv_head_ = kv_head;
    if constexpr (kHasRegisters) kept_ = rows_of_lane(k_, v_, kv_head);
  }
  // Returns the lane's rows: those of V for lanes 16 to 31.
  __device__ __forceinline__ HeadRows of_lane() const {
    if constexpr (kHasRegisters) return kept_;
    return rows_of_lane(k_, v_, kv_head_);
  }
  __device__ __forceinline__ HeadRows of_k() const { return rows_of_head(k_, kv_head_); }
  __device__ __forceinline__ HeadRows of_v() const { return rows_of_head(v_, kv_head_); }

 private:
  const OperandView& k_;
  const OperandView& v_;
  int kv_head_;
  HeadRows kept_;
};

class NibbleCopies {
 public:
  __device__ __forceinline__ explicit NibbleCopies(const AttentionArgs& args)
      : rows_(args.k, args.v) {}
  // Sets the head of later tiles.
  __device__ __forceinline__ void take(int kv_head) { rows_.take(kv_head); }
  // Copies a tile: lane % kKeys is the lane's key, which lies in row `row` of `page`; `keys` of the
  // tile exist.
  __device__ __forceinline__ void copy(unsigned slot, int page, int row, int keys,
                                       L2Policy policy) const {
    if constexpr (kKeys == 16) {
      const char* const own = rows_.of_lane().row(page, row);
      copy_nibble_rows<KTile>(slot, own, 0, keys, policy);
      copy_nibble_rows<VTile>(slot + kValuesAt, own, 16, keys, policy);
    } else {
      copy_nibble_rows<KTile>(slot, rows_.of_k().row(page, row), 0, keys, policy);
      copy_nibble_rows<VTile>(slot + kValuesAt, rows_.of_v().row(page, row), 0, keys, policy);
    }
  }

 private:
  RowsOfHeads rows_;
};

}  // namespace attune
