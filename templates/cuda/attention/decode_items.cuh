// SPDX-License-Identifier: Apache-2.0
// What a block of a decode kernel works on: its range of the line of items (shared/decode_partition.h), found by every warp for itself from
// the lengths of all requests, and the rows of an item.
#pragma once

#include "cuda/attention/kernel_parts.cuh"
#include "shared/decode_layout.h"
#include "shared/decode_requests.h"

namespace attune {

struct DecodeRule {
  static constexpr Mask mask = kMask;
  static constexpr int window_left = kWindowLeft, window_right = kWindowRight;
};

__device__ __forceinline__ DecodeRequest request_of(const KernelParts& parts, int request) {
  return decode_request<kHasBegins>(parts.base, parts.cache, request);
}

__device__ __forceinline__ DecodeTiles tiles_of(const KernelParts& parts, int request) {
  const DecodeRequest made = request_of(parts, request);
  return decode_tiles(made.length, made.rows, kWindowLeft, kKeys);
}

// Positions of the request that lane `lane` has of 32 from `first` on.
__device__ __forceinline__ int cost_of(const KernelParts& parts, const DecodeRange& range,
                                       int request) {
  return request < parts.base.batch ? range.cost(tiles_of(parts, request)) : 0;
}

__device__ __forceinline__ int sum_of_lanes_before(int value, int lane) {
  int sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  return sum - value;
}

// The range of this block, and where a walk over it begins. All lanes of a warp call it.
__device__ __forceinline__ DecodeWalk find_range(const KernelParts& parts, DecodeRange* range) {
  const int lane = threadIdx.x % 32, batch = parts.base.batch;
  range->charge = kCharge;
  range->items = parts.base.num_heads_kv * decode_row_tiles(parts.base.seqlen_q, kGqaRatio);
  const int cost_of_first = cost_of(parts, *range, lane);
  int total = __reduce_add_sync(~0u, cost_of_first);
  for (int first = 32; first < batch; first += 32)
    total += __reduce_add_sync(~0u, cost_of(parts, *range, first + lane));
  range->take(total, static_cast<int>(gridDim.x), kMinTiles, static_cast<int>(blockIdx.x));
  int start = 0;
  for (int first = 0; first < batch; first += 32) {
    const int cost = first == 0 ? cost_of_first : cost_of(parts, *range, first + lane);
    const int before = start + sum_of_lanes_before(cost, lane);
    const unsigned found = __ballot_sync(~0u, range->begin < before + cost);
    if (found != 0) {
      const int owner = __ffs(static_cast<int>(found)) - 1;
      return {first + owner, __shfl_sync(~0u, before, owner), range->begin};
    }
    start = __shfl_sync(~0u, before + cost, 31);
  }
  return {0, 0, range->end};  // no positions are left
}

// An item's place: up to 16 rows of q, token by token, the heads of each token side by side.
struct DecodeItem {
  DecodeRequest request;
  int number, kv_head, first;  // first: of its rows among those of its head of K
  int rows;                    // none or less where a packed request has fewer than others

  __device__ __forceinline__ DecodeItem(const KernelParts& parts, const DecodePiece& piece)
      : request(request_of(parts, piece.request)), number(piece.request) {
    const int tiles = decode_row_tiles(parts.base.seqlen_q, kGqaRatio);
    kv_head = piece.item / tiles;
    first = piece.item % tiles * kDecodeRows;
    rows = min(kDecodeRows, request.rows * kGqaRatio - first);
  }
  __device__ __forceinline__ int token(int row) const { return (first + row) / kGqaRatio; }
  __device__ __forceinline__ int head(int row) const {
    return kv_head * kGqaRatio + (first + row) % kGqaRatio;
  }
  // Elements from the beginning of q or o.
  __device__ __forceinline__ long long in(const OperandView& view, int row) const {
    const long long batch = kHasBegins ? 0 : number;
    return batch * view.batch_stride + (request.first_row + token(row)) * view.row_stride +
           head(row) * view.head_stride;
  }
  __device__ __forceinline__ long long in_lse(const AttentionArgs& args, int row) const {
    const long long batch = kHasBegins ? 0 : number;
    return batch * args.lse_batch_stride + head(row) * args.lse_head_stride + request.first_row +
           token(row);
  }
};

}  // namespace attune
