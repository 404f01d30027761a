// SPDX-License-Identifier: Apache-2.0
// mma.sync of tf32, fp32 accumulators (PTX ISA 9.7.14.5.5, sm_80): D[16 x 8] += A[16 x 8] B[8 x 8].
// tf32 is fp32 with 10 bits behind the point instead of 23: tensor cores do not look at the last
// 13. Fragments are those of mma.cuh with one element in the place of two; lane l holds, with r = l
// / 4 and c = l % 4:
//   a[0]  row r,     k c       a[2]  row r,     k c + 4       b[0]  k c,     column r
//   a[1]  row r + 8, k c       a[3]  row r + 8, k c + 4       b[1]  k c + 4, column r
// kTf32Products: 1: a product of fp32 elements is that of tf32 numbers next to them; 3: each
// element is the sum of two tf32 numbers, and all but the product of the smaller ones is added up.
#pragma once

#include "cuda/ptx/mma.cuh"

namespace attune {

// Bits of which those that tf32 has are one of the two numbers next to `bits`, the nearer one in
// most cases: what is cut off behind them is made up for on average, by as much as it is of numbers
// of any size. Numbers of tf32 stay what they are, and so do NaN and infinity. cvt.rna.tf32 is two
// instructions, and with the sign of errors this takes the bias of cutting off away as well.
__device__ __forceinline__ unsigned near_tf32(unsigned bits) {
  constexpr float kMakesUp =
      1.0f + 0.7213f / 2048;  // the mean of 1 / m, 1 <= m < 2, of half a step
  return __float_as_uint(__uint_as_float(bits) * kMakesUp);
}

// The number of tf32 that tensor cores see, and what is left of `bits` beside it: fewer bits than
// tf32 has, but for the last two. NaN beside infinity.
__device__ __forceinline__ unsigned high_tf32(unsigned bits) {
  return near_tf32(bits) & 0xFFFFE000u;
}
__device__ __forceinline__ unsigned rest_tf32(unsigned bits, unsigned high) {
  return __float_as_uint(__uint_as_float(bits) - __uint_as_float(high));
}

__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A is of near_tf32 where there is one product, else of fp32; B is of fp32. Operands that several
// calls have in common are taken apart once: the compiler sees that.
template <>
__device__ __forceinline__ void mma<Dtype::kFp32>(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  if constexpr (kTf32Products == 1) {
    mma_m16n8k8_tf32(d, a, near_tf32(b0), near_tf32(b1));
  } else {
    const unsigned high0 = high_tf32(b0), high1 = high_tf32(b1);
    unsigned high[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = high_tf32(a[i]);
      rest[i] = rest_tf32(a[i], high[i]);
    }
    mma_m16n8k8_tf32(d, rest, high0, high1);
    mma_m16n8k8_tf32(d, high, rest_tf32(b0, high0), rest_tf32(b1, high1));
    mma_m16n8k8_tf32(d, high, high0, high1);
  }
}

}  // namespace attune
