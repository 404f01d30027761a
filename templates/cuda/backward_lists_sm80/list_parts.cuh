// SPDX-License-Identifier: Apache-2.0
// Sums of dK and dV in a fixed order. Blocks of backward_lists_sm80 store their parts in the
// workspace, at a place for each entry of a list. Then attune_join adds them to the sums, in the
// order of rows, entries and tiles of heads. list_order.cuh finds the entries of each key. Parts
// take much memory, so the kernels run in rounds of some rows.
#pragma once

#include "cuda/backward_lists_sm80/list_order.cuh"

namespace attune {

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

constexpr int kJoinThreads = 256;
constexpr int kJoinAtOnce = kHeadTiles < 8 ? 8 / kHeadTiles : 1;  // entries that a thread loads

// Adds the parts of a round to the sums. A thread has four columns of a key and head of K. Grid:
// these, of all batch entries of the round.
extern "C" __global__ void __launch_bounds__(kJoinThreads)
    attune_join(const __grid_constant__ AttentionArgs args, const __grid_constant__ RoundArgs round,
                const __grid_constant__ KeyListArgs lists) {
  if (args.seqlen_kv == 0 || args.seqlen_q == 0) return;
  const int last = round.first_head + round.heads - 1;
  const long long of_entry = num_key_sums(args) / args.batch;
  const long long at =
      round.first_head / args.seqlen_q * of_entry +
      4 * (static_cast<long long>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x));
  if (at >= (last / args.seqlen_q + 1) * of_entry) return;
  const int2 range = key_ranges(args, round, lists.length)[at / kSumColumns];
  if (range.x == range.y) return;
  const int* const entries = ordered_entries(args, round, lists.length);
  const float* const parts = key_parts(args) + at % kSumColumns;
  float4* const to = reinterpret_cast<float4*>(key_sums(args) + at);
  float4 sum = *to;
#pragma unroll 1
  for (int first = range.x; first < range.y; first += kJoinAtOnce) {
    float4 loaded[kJoinAtOnce][kHeadTiles];
#pragma unroll
    for (int i = 0; i < kJoinAtOnce * kHeadTiles; ++i) {
      if (first + i / kHeadTiles >= range.y) continue;
      const long long number = entries[first + i / kHeadTiles];
      loaded[i / kHeadTiles][i % kHeadTiles] = *reinterpret_cast<const float4*>(
          parts + (number * kHeadTiles + i % kHeadTiles) * kSumColumns);
    }
#pragma unroll
    for (int i = 0; i < kJoinAtOnce * kHeadTiles; ++i) {
      if (first + i / kHeadTiles >= range.y) continue;
      const float4& part = loaded[i / kHeadTiles][i % kHeadTiles];
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
  }
  *to = sum;
}

}  // namespace attune
