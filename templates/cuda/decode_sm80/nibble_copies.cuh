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

// Returns `second` if `takes_second`, else `first`, without branches.
__device__ __forceinline__ OperandView view_of_lane(bool takes_second, const OperandView& first,
                                                    const OperandView& second) {
  return {takes_second ? second.data : first.data,
          takes_second ? second.batch_stride : first.batch_stride,
          takes_second ? second.row_stride : first.row_stride,
          takes_second ? second.head_stride : first.head_stride};
}
__device__ __forceinline__ const char* nibble_row(const OperandView& view, int page, int row,
                                                  int kv_head) {
  return static_cast<const char*>(view.data) + page * view.batch_stride + row * view.row_stride +
         kv_head * view.head_stride;
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

// Copies a tile: lane % kKeys is the lane's key, which lies in row `row` of `page`; `keys` of the
// tile exist.
__device__ __forceinline__ void copy_nibble_tile(unsigned slot, const AttentionArgs& args, int page,
                                                 int row, int kv_head, int keys, L2Policy policy) {
  if constexpr (kKeys == 16) {
    const bool is_v = threadIdx.x % 32 >= 16;
    const char* const own = nibble_row(view_of_lane(is_v, args.k, args.v), page, row, kv_head);
    copy_nibble_rows<KTile>(slot, own, 0, keys, policy);
    copy_nibble_rows<VTile>(slot + kValuesAt, own, 16, keys, policy);
  } else {
    copy_nibble_rows<KTile>(slot, nibble_row(args.k, page, row, kv_head), 0, keys, policy);
    copy_nibble_rows<VTile>(slot + kValuesAt, nibble_row(args.v, page, row, kv_head), 0, keys,
                            policy);
  }
}

}  // namespace attune
