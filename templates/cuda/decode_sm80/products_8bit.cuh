// SPDX-License-Identifier: Apache-2.0
// Products of a decode kernel with a cache of 8 bits, in fp16. A register of ldmatrix has two
// adjacent 8-bit values in place of each 16-bit value, and becomes two registers:
//   K  A register holds four adjacent columns of a key, so q is read in that order: of 16 columns a
//      lane has 4 * (lane % 4) to 4 * (lane % 4) + 3.
//   V  A register holds two columns of two keys. Bytes of one column are put together, so one
//      product makes the even columns of 16 and another the odd ones. A lane's four columns of O
//      are adjacent, and alternate between the two tiles.
// e4m3, e5m2 and int8 are exact in fp16. bf16 values of q are exact within fp16's range of
// exponents. Values of q beyond 65504 become 65504.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/permute_bytes.cuh"
#include "cuda/ptx/to_fp16.cuh"
#include "shared/key_factors.h"

namespace attune {

// Converts the four codes of a word of the cache. `low` gets the codes of its two lowest bytes.
template <Dtype kDtype>
__device__ __forceinline__ void codes_to_fp16(unsigned word, unsigned& low, unsigned& high) {
  if constexpr (kDtype == Dtype::kInt8)
    int8_to_fp16(word, low, high);
  else
    fp8_to_fp16<kDtype>(word, low, high);
}

template <>
struct CacheProducts<8> {
  static constexpr Dtype kMath = Dtype::kFp16;
  static constexpr int kStepsOfLoad = 2;
  static constexpr int kTileColumns = 16;
  static constexpr int kSecondWord = 1;

  static __device__ __forceinline__ int first_word(int lane, int) { return lane % 4 * 2; }

  static __device__ __forceinline__ unsigned q_word(unsigned two) {
    if constexpr (kDtypeQ == Dtype::kFp16) return two;
    const float low = bf16_to_float(static_cast<unsigned short>(two));
    const float high = bf16_to_float(static_cast<unsigned short>(two >> 16));
    if constexpr (kArch >= 89) return pack_finite_fp16(low, high);
    constexpr float kMost = 65504.0f;
    const auto finite = [](float x) { return x > kMost ? kMost : x < -kMost ? -kMost : x; };
    return pack<Dtype::kFp16>(finite(low), finite(high));
  }

  static __device__ __forceinline__ void arrange(unsigned&, unsigned&) {}

  // `b`: for tile n the columns of the first step, then of the second, then both for tile n + 1.
  template <int kTiles>
  static __device__ __forceinline__ void add_qk(float (&scores)[kTiles][4], int n,
                                                const unsigned (&q)[2][4], const unsigned (&b)[4],
                                                int of_load, int steps) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      if (of_load + step >= steps) continue;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        unsigned low, high;
        codes_to_fp16<kDtypeKv>(b[2 * tile + step], low, high);
        mma<kMath>(scores[n + tile], q[step], low, high);
      }
    }
  }

  // `b`: 16 columns of keys 0 to 7, then of keys 8 to 15, then the next columns, as far as O has
  // them.
  template <int kTiles>
  static __device__ __forceinline__ void add_pv(float (&output)[kTiles][4], int n,
                                                const unsigned (&p)[4], const unsigned (&b)[4]) {
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      if (n + 2 * chunk >= kTiles) continue;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const unsigned column =
            permuted(b[2 * chunk], b[2 * chunk + 1], odd == 0 ? 0x6420 : 0x7531);
        unsigned low, high;
        codes_to_fp16<kDtypeKv>(column, low, high);
        mma<kMath>(output[n + 2 * chunk + odd], p, low, high);
      }
    }
  }

  static __device__ __forceinline__ constexpr int first_column(int n) { return n / 2 * 16; }
  static __device__ __forceinline__ int lane_column(int n, int lane) {
    return lane % 4 * 4 + n % 2 * 2;
  }
  template <int kTiles>
  static __device__ __forceinline__ float output(const float (&output)[kTiles][4], int n, int half,
                                                 int column) {
    return output[n / 2 * 2 + column][2 * half + n % 2];
  }
};

}  // namespace attune
