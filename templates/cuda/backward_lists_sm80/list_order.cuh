// SPDX-License-Identifier: Apache-2.0
// Orders the entries of a round's lists by the key that they name, and those of one key by their
// rows (backward_lists_sm80). It is a counting sort: each block has some keys, counts all entries
// that name them, and then reads the entries again to place them.
#pragma once

#include "cuda/backward_lists_sm80/list_tiles.cuh"
#include "shared/round_args.h"

namespace attune {

__device__ __forceinline__ RowRange rows_of(const AttentionArgs&, const RoundArgs& round) {
  return {round.first_head, round.heads};
}

// Return two arrays that follow the parts of a round of `round.stride` rows. The first one has the
// begin and end of each key in the second one: [batch, seqlen_kv, num_heads_kv].
__device__ __forceinline__ int2* key_ranges(const AttentionArgs& args, const RoundArgs& round,
                                            int length) {
  return reinterpret_cast<int2*>(key_parts(args) + static_cast<long long>(round.stride) *
                                                       args.num_heads_kv * length * kHeadTiles *
                                                       kSumColumns);
}
// The second one has numbers of entries, [rows of a round, num_heads_kv, length], ordered by key.
__device__ __forceinline__ int* ordered_entries(const AttentionArgs& args, const RoundArgs& round,
                                                int length) {
  return reinterpret_cast<int*>(key_ranges(args, round, length) + num_key_sums(args) / kSumColumns);
}

constexpr int kOrderThreads = 1024, kOrderWarps = kOrderThreads / 32;
constexpr int kOrderKeys = 256;   // of a block
constexpr int kOrderEntries = 8;  // that a lane reads at once

struct OrderSums {
  int counts[kOrderWarps][kOrderKeys];  // entries of a warp's share that name a key
  int before[kOrderWarps];              // those that name a key of another block before this one
  int keys[kOrderWarps];                // those that name one of 32 keys
};

class ListOrder {
 public:
  // Grid: batch entries of the round x heads of K x blocks of keys.
  __device__ __forceinline__ ListOrder(const AttentionArgs& args, const RoundArgs& round,
                                       const KeyListArgs& lists, OrderSums& sums)
      : args_(args), round_(round), lists_(lists), sums_(sums) {
    const int blocks = (args.seqlen_kv + kOrderKeys - 1) / kOrderKeys;
    const int line = static_cast<int>(blockIdx.x) / blocks;
    first_key_ = static_cast<int>(blockIdx.x) % blocks * kOrderKeys;
    head_ = line % args.num_heads_kv;
    batch_ = round.first_head / args.seqlen_q + line / args.num_heads_kv;
    begin_ = max(round.first_head, batch_ * args.seqlen_q);
    end_ = min(round.first_head + round.heads, (batch_ + 1) * args.seqlen_q);
  }

  __device__ __forceinline__ void run() const {
    if (begin_ >= end_) return;  // the round has no rows of this batch entry
    for (int i = thread(); i < kOrderWarps * kOrderKeys; i += kOrderThreads)
      sums_.counts[i / kOrderKeys][i % kOrderKeys] = 0;
    __syncthreads();
    count();
    __syncthreads();
    make_places();
    __syncthreads();
    place();
  }

 private:
  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x); }

  // Calls each(key, number of the entry) for this warp's share of the entries, row by row. An entry
  // that names no key has key -1.
  template <class Each>
  __device__ __forceinline__ void walk(const Each& each) const {
    constexpr int kAtOnce = 32 * kOrderEntries;
    const int pieces = (lists_.length + kAtOnce - 1) / kAtOnce, all = (end_ - begin_) * pieces;
    const int warp = thread() / 32, lane = thread() % 32;
#pragma unroll 1
    for (int i = all * warp / kOrderWarps; i < all * (warp + 1) / kOrderWarps; ++i) {
      const int row = begin_ + i / pieces, first = i % pieces * kAtOnce + lane;
      const int* const entries =
          lists_.indices + row * lists_.row_stride + head_ * lists_.head_stride;
      int count = lists_.length;
      if (lists_.counts != nullptr) count = min(lists_.counts[row], count);
      int keys[kOrderEntries];
#pragma unroll
      for (int j = 0; j < kOrderEntries; ++j)
        keys[j] = first + 32 * j < count ? entries[first + 32 * j] : -1;
      const int line = (row - round_.first_head) * args_.num_heads_kv + head_;
#pragma unroll
      for (int j = 0; j < kOrderEntries; ++j)
        each(keys[j] < args_.seqlen_kv ? keys[j] : -1, line * lists_.length + first + 32 * j);
      __syncwarp();  // before another row
    }
  }
  __device__ __forceinline__ bool is_own(int key) const {
    return key >= first_key_ && key < first_key_ + kOrderKeys;
  }

  __device__ __forceinline__ void count() const {
    const int warp = thread() / 32;
    int before = 0;
    walk([&](int key, int) {
      if (key >= 0 && key < first_key_) ++before;
      if (is_own(key)) atomicAdd(&sums_.counts[warp][key - first_key_], 1);
    });
    before = __reduce_add_sync(0xFFFFFFFFu, before);
    if (thread() % 32 == 0) sums_.before[warp] = before;
  }

  // Replaces counts by places: the entries of a key are in the order of warps.
  __device__ __forceinline__ void make_places() const {
    const int key = thread(), warp = thread() / 32, lane = thread() % 32;
    int all = 0;
    for (int i = 0; key < kOrderKeys && i < kOrderWarps; ++i) {
      const int count = sums_.counts[i][key];
      sums_.counts[i][key] = all;
      all += count;
    }
    int up_to = all;  // entries of this warp's keys up to this one
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int of_lane = __shfl_up_sync(0xFFFFFFFFu, up_to, lanes);
      if (lane >= lanes) up_to += of_lane;
    }
    if (lane == 31) sums_.keys[warp] = up_to;
    __syncthreads();
    const int first = (begin_ - round_.first_head) * args_.num_heads_kv + head_ * (end_ - begin_);
    int at = first * lists_.length + up_to - all;
#pragma unroll 1
    for (int i = 0; i < kOrderWarps; ++i) at += sums_.before[i] + (i < warp ? sums_.keys[i] : 0);
    if (key >= kOrderKeys || first_key_ + key >= args_.seqlen_kv) return;
    for (int i = 0; i < kOrderWarps; ++i) sums_.counts[i][key] += at;
    const long long number = static_cast<long long>(batch_) * args_.seqlen_kv + first_key_ + key;
    key_ranges(args_, round_, lists_.length)[number * args_.num_heads_kv + head_] =
        int2{at, at + all};
  }

  // Writes the entries of the block's keys to their places. Entries of one row that name one key
  // have equal parts, so their order does not matter.
  __device__ __forceinline__ void place() const {
    int* const to = ordered_entries(args_, round_, lists_.length);
    int* const places = sums_.counts[thread() / 32];
    walk([&](int key, int entry) {
      if (is_own(key)) to[atomicAdd(&places[key - first_key_], 1)] = entry;
    });
  }

  const AttentionArgs& args_;
  const RoundArgs& round_;
  const KeyListArgs& lists_;
  OrderSums& sums_;
  int first_key_, head_, batch_;
  int begin_, end_;  // rows of the round in this batch entry
};

extern "C" __global__ void __launch_bounds__(kOrderThreads)
    attune_order(const __grid_constant__ AttentionArgs args,
                 const __grid_constant__ RoundArgs round,
                 const __grid_constant__ KeyListArgs lists) {
  __shared__ OrderSums sums;
  if (args.seqlen_kv == 0 || args.seqlen_q == 0) return;
  ListOrder(args, round, lists, sums).run();
}

}  // namespace attune
