// SPDX-License-Identifier: Apache-2.0
// Sums of dK and dV in a fixed order. Blocks of backward_lists_sm80 store their parts in the
// workspace, at a place for each entry of a list. Then attune_join adds them to the sums, in the
// order of rows, entries and tiles of heads. Parts take much memory, so both kernels run in rounds
// of some rows.
#pragma once

#include "cuda/backward_lists_sm80/list_tiles.cuh"
#include "shared/round_args.h"

namespace attune {

__device__ __forceinline__ RowRange rows_of(const AttentionArgs&, const RoundArgs& round) {
  return {round.first_head, round.heads};
}

class KeyTarget {
 public:
  __device__ __forceinline__ KeyTarget(const AttentionArgs& args, const ListBlock& block,
                                       const ListTiles& tiles)
      : tiles_(tiles) {
    const long long line =
        static_cast<long long>(block.in_round) * args.num_heads_kv + block.head_kv;
    parts_ = key_parts(args) + (line * block.length * kHeadTiles + block.tile) * kSumColumns;
  }

  // Stores accumulators of `count` tiles of 8 columns, from `column` on. This lane has the columns
  // of mma.sync of the keys `number` and `number` + 8 of a step.
  template <int kTiles>
  __device__ __forceinline__ void add(int step, int number, int column, int count,
                                      const float (&sums)[kTiles][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (tiles_.key(step, number + 8 * half) < 0) continue;
      const long long entry = step * kKeys + number + 8 * half;
      float* const to = parts_ + entry * kHeadTiles * kSumColumns + column + threadIdx.x % 4 * 2;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        if (n < count)
          *reinterpret_cast<float2*>(to + 8 * n) =
              make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
    }
  }

 private:
  const ListTiles& tiles_;
  float* parts_;  // of the list's first entry
};

constexpr int kJoinThreads = 256, kJoinWarps = kJoinThreads / 32;
constexpr int kJoinKeys = 128;   // of a block
constexpr int kJoinEntries = 8;  // that a thread reads at once

// Adds parts of a round to the sums of some keys of a head of K. A warp adds those of every
// kJoinWarps-th key.
class ListJoin {
 public:
  // Grid: batch entries x heads of K x blocks of keys.
  __device__ __forceinline__ ListJoin(const AttentionArgs& args, const KeyListArgs& lists,
                                      const RowRange& rows)
      : args_(args), lists_(lists) {
    const int blocks = (args.seqlen_kv + kJoinKeys - 1) / kJoinKeys;
    const int line = static_cast<int>(blockIdx.x) / blocks;
    first_key_ = static_cast<int>(blockIdx.x) % blocks * kJoinKeys;
    head_ = line % args.num_heads_kv, batch_ = line / args.num_heads_kv;
    first_ = rows.first;
    begin_ = max(rows.first, batch_ * args.seqlen_q);
    end_ = min(rows.first + rows.count, (batch_ + 1) * args.seqlen_q);
  }

  // queue: room for the entries that a block reads at once. counts: a word for each warp.
  __device__ __forceinline__ void run(int2* queue, int* counts) const {
    for (int row = begin_; row < end_; ++row) {
      const int* const entries =
          lists_.indices + row * lists_.row_stride + head_ * lists_.head_stride;
      int count = lists_.length;
      if (lists_.counts != nullptr) count = max(0, min(lists_.counts[row], lists_.length));
      for (int first = 0; first < count; first += kJoinThreads * kJoinEntries) {
        const int found = find(entries, first, count, queue, counts);
        for (int i = 0; i < found; ++i)
          if (queue[i].x % kJoinWarps == static_cast<int>(threadIdx.x / 32)) add(row, queue[i]);
        __syncthreads();  // the queue is no longer read
      }
    }
  }

 private:
  // Puts the entries from `first` on that name a key of the block into the queue, in their order,
  // as pairs (key of the block, entry). Returns how many there are.
  __device__ __forceinline__ int find(const int* entries, int first, int count, int2* queue,
                                      int* counts) const {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    const int own = first + thread * kJoinEntries;
    const int keys = min(kJoinKeys, args_.seqlen_kv - first_key_);
    int key[kJoinEntries], hits = 0;
#pragma unroll
    for (int i = 0; i < kJoinEntries; ++i) {
      key[i] = own + i < count ? entries[own + i] - first_key_ : -1;
      if (key[i] >= 0 && key[i] < keys)
        ++hits;
      else
        key[i] = -1;
    }
    int before = hits;  // hits of this warp's lanes up to this one
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int of_lane = __shfl_up_sync(0xFFFFFFFFu, before, lanes);
      if (lane >= lanes) before += of_lane;
    }
    if (lane == 31) counts[thread / 32] = before;
    __syncthreads();
    int at = before - hits, all = 0;
#pragma unroll
    for (int warp = 0; warp < kJoinWarps; ++warp) {
      if (warp < thread / 32) at += counts[warp];
      all += counts[warp];
    }
#pragma unroll
    for (int i = 0; i < kJoinEntries; ++i)
      if (key[i] >= 0) queue[at++] = int2{key[i], own + i};
    __syncthreads();
    return all;
  }

  __device__ __forceinline__ void add(int row, const int2& hit) const {
    const long long line = static_cast<long long>(row - first_) * args_.num_heads_kv + head_;
    const float* const from =
        key_parts(args_) + (line * lists_.length + hit.y) * kHeadTiles * kSumColumns;
    const long long keys = static_cast<long long>(batch_) * args_.seqlen_kv + first_key_ + hit.x;
    float* const to = key_sums(args_) + (keys * args_.num_heads_kv + head_) * kSumColumns;
    for (int column = static_cast<int>(threadIdx.x % 32); column < kSumColumns; column += 32) {
      float sum = to[column];
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) sum += from[tile * kSumColumns + column];
      to[column] = sum;
    }
  }

  const AttentionArgs& args_;
  const KeyListArgs& lists_;
  int first_key_, head_, batch_;
  int first_;        // row of the round
  int begin_, end_;  // rows of the round in this batch entry
};

extern "C" __global__ void __launch_bounds__(kJoinThreads)
    attune_join(const __grid_constant__ AttentionArgs args, const __grid_constant__ RoundArgs round,
                const __grid_constant__ KeyListArgs lists) {
  __shared__ int2 queue[kJoinThreads * kJoinEntries];
  __shared__ int counts[kJoinWarps];
  if (args.seqlen_kv == 0 || args.batch == 0) return;
  ListJoin(args, lists, rows_of(args, round)).run(queue, counts);
}

}  // namespace attune
