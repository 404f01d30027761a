// SPDX-License-Identifier: Apache-2.0
// mma.sync of tf32, fp32 accumulators (PTX ISA 9.7.14.5.5, sm_80): D[16 x 8] += A[16 x 8] B[8 x 8].
// tf32 is fp32 with 10 bits behind the point instead of 23. Fragments are those of mma.cuh with one
// element in the place of two; lane l holds, with r = l / 4 and c = l % 4:
//   a[0]  row r,     k c       a[2]  row r,     k c + 4       b[0]  k c,     column r
//   a[1]  row r + 8, k c       a[3]  row r + 8, k c + 4       b[1]  k c + 4, column r
// kTf32Products: 1: a product of fp32 elements is that of the nearest tf32 numbers; 3: each element
// is the sum of two of them, and all but the product of the smaller ones is added up.
#pragma once

#include "cuda/ptx/mma.cuh"

namespace attune {

// Ties away from zero.
__device__ __forceinline__ unsigned round_tf32(unsigned bits) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
  return rounded;
}

// What is left of an element beside its nearest tf32 number, rounded too; NaN beside infinity.
__device__ __forceinline__ unsigned rest_tf32(unsigned bits, unsigned rounded) {
  return round_tf32(__float_as_uint(__uint_as_float(bits) - __uint_as_float(rounded)));
}

__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Of fp32 bits. Equal operands of several calls are rounded once: the compiler sees that.
template <>
__device__ __forceinline__ void mma<Dtype::kFp32>(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  unsigned high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = round_tf32(a[i]);
  const unsigned high0 = round_tf32(b0), high1 = round_tf32(b1);
  if constexpr (kTf32Products == 3) {
    unsigned low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = rest_tf32(a[i], high[i]);
    mma_m16n8k8_tf32(d, low, high0, high1);
    mma_m16n8k8_tf32(d, high, rest_tf32(b0, high0), rest_tf32(b1, high1));
  }
  mma_m16n8k8_tf32(d, high, high0, high1);
}

}  // namespace attune
