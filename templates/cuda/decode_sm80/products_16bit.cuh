// SPDX-License-Identifier: Apache-2.0
// Products of a decode kernel with a cache of 16 bits, in the cache's dtype.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/ptx/mma.cuh"

namespace attune {

template <>
struct CacheProducts<16> {
  static constexpr Dtype kMath = kDtypeKv;
  static constexpr int kStepsOfLoad = 1;
  static constexpr int kTileColumns = 8;
  static constexpr int kSecondWord = 4;

  static __device__ __forceinline__ int first_word(int lane, int) { return lane % 4; }
  static __device__ __forceinline__ unsigned q_word(unsigned two) { return two; }
  static __device__ __forceinline__ void arrange(unsigned&, unsigned&) {}

  template <int kTiles>
  static __device__ __forceinline__ void add_qk(float (&scores)[kTiles][4], int n,
                                                const unsigned (&q)[1][4], const unsigned (&b)[4],
                                                int, int) {
    mma<kMath>(scores[n], q[0], b[0], b[1]);
    mma<kMath>(scores[n + 1], q[0], b[2], b[3]);
  }
  template <int kTiles>
  static __device__ __forceinline__ void add_pv(float (&output)[kTiles][4], int n,
                                                const unsigned (&p)[4], const unsigned (&b)[4]) {
    mma<kMath>(output[n], p, b[0], b[1]);
    mma<kMath>(output[n + 1], p, b[2], b[3]);
  }

  static __device__ __forceinline__ constexpr int first_column(int n) { return n * 8; }
  static __device__ __forceinline__ int lane_column(int, int lane) { return lane % 4 * 2; }
  template <int kTiles>
  static __device__ __forceinline__ float output(const float (&output)[kTiles][4], int n, int half,
                                                 int column) {
    return output[n][2 * half + column];
  }
};

}  // namespace attune
