// SPDX-License-Identifier: Apache-2.0
// Adds the part of dK and dV of each block of backward_lists_sm80 to the sums, in no fixed order.
// list_parts.cuh has a fixed order.
#pragma once

#include "cuda/backward_lists_sm80/list_tiles.cuh"
#include "cuda/ptx/bulk_copies.cuh"

namespace none {

enum AbsentRound { of_round };  // the name of a parameter that the kernel does not take

}  // namespace none

namespace attune {
using namespace none;

__device__ __forceinline__ RowRange rows_of(const AttentionArgs& args, AbsentRound) {
  return {0, args.batch * args.seqlen_q};
}

class KeyTarget {
 public:
  __device__ __forceinline__ KeyTarget(const AttentionArgs& args, const ListBlock& block,
                                       const ListTiles& tiles)
      : tiles_(tiles), key_step_(args.num_heads_kv * kSumColumns) {
    sums_ = key_sums(args) + block.batch * args.seqlen_kv * key_step_ + block.head_kv * kSumColumns;
  }

  // Adds accumulators of `count` tiles of 8 columns, from `column` on. This lane has the columns of
  // mma.sync of the keys `number` and `number` + 8 of a step.
  template <int kTiles>
  __device__ __forceinline__ void add(int step, int number, int column, int count,
                                      const float (&sums)[kTiles][4]) const {
    if constexpr (kArch >= 90) {
      add_fours(tiles_.key(step, number + lane() % 2 * 8), column, count, sums);
    } else {
      add_pairs(tiles_.key(step, number), column, count, 0, sums);
      add_pairs(tiles_.key(step, number + 8), column, count, 2, sums);
    }
  }

 private:
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  // Two neighbouring lanes have four columns of two keys. Each adds those of one key.
  template <int kTiles>
  __device__ __forceinline__ void add_fours(int key, int column, int count,
                                            const float (&sums)[kTiles][4]) const {
    const bool is_odd = lane() % 2 != 0;
    float other[kTiles][2];
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const float(&own)[4] = sums[i / 2];
      other[i / 2][i % 2] = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? own[i % 2] : own[2 + i % 2], 1);
    }
    if (key < 0) return;
    float* const to = sums_ + key * key_step_ + column + lane() % 4 / 2 * 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float(&own)[4] = sums[n];
      const float first = is_odd ? other[n][0] : own[0], third = is_odd ? own[2] : other[n][0];
      const float second = is_odd ? other[n][1] : own[1], fourth = is_odd ? own[3] : other[n][1];
      if (n < count) add_four(to + 8 * n, first, second, third, fourth);
    }
  }
  template <int kTiles>
  __device__ __forceinline__ void add_pairs(int key, int column, int count, int half,
                                            const float (&sums)[kTiles][4]) const {
    if (key < 0) return;
    float* const to = sums_ + key * key_step_ + column + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (n >= count) continue;
      atomicAdd(to + 8 * n, sums[n][half]);
      atomicAdd(to + 8 * n + 1, sums[n][half + 1]);
    }
  }

  const ListTiles& tiles_;
  const long long key_step_;  // floats from one key to the next
  float* sums_;               // of key 0
};

}  // namespace attune
