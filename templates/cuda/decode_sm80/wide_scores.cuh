// SPDX-License-Identifier: Apache-2.0
// Scores of wide heads. Each of kColumnWarps warps multiplies its own columns of Q and K. The warps
// then add their products through shared memory. All of them compute the same softmax afterwards.
#pragma once

#include "cuda/decode_sm80/decode_columns.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

static_assert(kDecodeColumnWarps == 4, "two pairs of warps add their scores");

// The areas in which the warps of a tile leave their scores. A warp writes to its two areas in
// turn, over all pieces. Before it writes to one again, all warps have passed the barrier of the
// tile between, and so have read it.
class ColumnScores {
 public:
  __device__ __forceinline__ explicit ColumnScores(unsigned shared)
      : first_(shared + kShared.exchange_at + group() * (2 * kColumnWarps * kBytes)) {}

  // Turns each warp's sums over its own columns into the sums over all. The order of the additions
  // is the same in all warps: results are equal to the last bit.
  template <int kTiles>
  __device__ __forceinline__ void join(float (&scores)[kTiles][4]) {
    static_assert(kTiles * 8 == kKeys, "the scores of a tile");
    const unsigned area = first_ + turn_ * (kColumnWarps * kBytes), own = column_warp();
    turn_ ^= 1u;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
      store_shared_16(place(area, own, n),
                      {{__float_as_uint(scores[n][0]), __float_as_uint(scores[n][1]),
                        __float_as_uint(scores[n][2]), __float_as_uint(scores[n][3])}});
    named_barrier_sync(kFirstBarrier + group(), 32 * kColumnWarps);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const Vector16 partner = load_shared_16(place(area, own ^ 1u, n));
      const Vector16 third = load_shared_16(place(area, own ^ 2u, n));
      const Vector16 fourth = load_shared_16(place(area, own ^ 3u, n));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] = (scores[n][i] + __uint_as_float(partner.word[i])) +
                       (__uint_as_float(third.word[i]) + __uint_as_float(fourth.word[i]));
    }
  }

 private:
  static constexpr int kBytes = decode_exchange_bytes(kKeys, kColumnWarps) / 2;  // of an area
  static constexpr int kFirstBarrier = kTeam > 1 ? 1 + kTeams : 1;  // after those of teams
  static_assert(kFirstBarrier + kWarps / kColumnWarps <= 16, "a block has 16 barriers");

  // Returns the number of the warps that share a tile, among those of the block.
  static __device__ __forceinline__ int group() {
    return team_index() / kColumnWarps * kTeam + team_warp();
  }
  static __device__ __forceinline__ unsigned place(unsigned area, unsigned warp, int n) {
    return area + warp * kBytes + n * 512 + threadIdx.x % 32 * 16;
  }

  const unsigned first_;
  unsigned turn_ = 0;
};

}  // namespace attune
