// SPDX-License-Identifier: Apache-2.0
// mma.sync of tf32, fp32 accumulators (PTX ISA 9.7.14.5.5, sm_80): D[16 x 8] += A[16 x 8] B[8 x 8].
// tf32 is fp32 with 10 mantissa bits instead of 23: tensor cores ignore the last 13. Fragments are
// like those of mma.cuh with one element in the place of two; lane l holds, with r = l / 4 and c =
// l % 4:
//   a[0]  row r,     k c       a[2]  row r,     k c + 4       b[0]  k c,     column r
//   a[1]  row r + 8, k c       a[3]  row r + 8, k c + 4       b[1]  k c + 4, column r
// With kTf32Products 1, each fp32 element is replaced by a tf32 number next to it. With 3, each
// element is the sum of two tf32 numbers, and three of the four products are added; the product of
// the smaller numbers is left out.
#pragma once

#include "cuda/ptx/mma.cuh"

namespace attune {

// Multiplies by a factor that makes up, on average, for the bits that tensor cores cut off. The
// tf32 part of the result is one of the two tf32 numbers next to `bits`, in most cases the nearer
// one. Exact tf32 numbers keep their tf32 part, and NaN and infinity stay. cvt.rna.tf32 would take
// two instructions.
__device__ __forceinline__ unsigned near_tf32(unsigned bits) {
  constexpr float kMakesUp =
      1.0f + 0.7213f / 2048;  // half a step times the mean of 1 / m, 1 <= m < 2
  return __float_as_uint(__uint_as_float(bits) * kMakesUp);
}

// high_tf32 returns the tf32 number that tensor cores see, and rest_tf32 returns `bits` minus this
// number. tf32 represents the rest, except for its last two bits. The rest of infinity is NaN.
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

// A has gone through near_tf32 if kTf32Products is 1, else it is fp32; B is fp32. If several calls
// share an operand, the compiler splits it only once.
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
