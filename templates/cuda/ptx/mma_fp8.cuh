// SPDX-License-Identifier: Apache-2.0
// mma.sync of 8-bit floats, fp32 accumulators (PTX ISA 9.7.14.5.10, sm_89): D[16 x 8] += A[16 x 32]
// B[32 x 8], A e4m3, B e4m3 or e5m2. Fragments are like those of mma.cuh with two elements in the
// place of each; lane l holds, with r = l / 4 and c = 4 * (l % 4):
//   a[0]  row r,     k c .. c + 3       a[2]  row r,     k c + 16 .. c + 19
//   a[1]  row r + 8, k c .. c + 3       a[3]  row r + 8, k c + 16 .. c + 19
//   b[0]  k c .. c + 3, column r        b[1]  k c + 16 .. c + 19, column r
// Tensor cores of sm_89 and sm_120 multiply 8-bit operands and add with fewer bits than fp32. sm_90
// and sm_100 have no such mma.sync: ptxas unpacks to fp16, multiplies twice and adds each pair of
// products to D with separate instructions. With kUnpack this code unpacks too, but lets the
// products accumulate in D. The order of k then changes, in A and B alike.
#pragma once

#include "cuda/ptx/mma.cuh"

namespace attune {

template <Dtype kDtypeB>
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  static_assert(kDtypeB == Dtype::kE4m3 || kDtypeB == Dtype::kE5m2, "B is e4m3 or e5m2");
  if constexpr (kDtypeB == Dtype::kE4m3) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Converts four 8-bit floats to fp16, exactly; the first two are in `low`.
template <Dtype kDtype>
__device__ __forceinline__ void unpack_fp8(unsigned word, unsigned& low, unsigned& high) {
  if constexpr (kDtype == Dtype::kE4m3) {
    asm("{ .reg .b16 l, h;\n"
        "mov.b32 {l, h}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, l;\n"
        "cvt.rn.f16x2.e4m3x2 %1, h; }"
        : "=r"(low), "=r"(high)
        : "r"(word));
  } else {
    asm("{ .reg .b16 l, h;\n"
        "mov.b32 {l, h}, %2;\n"
        "cvt.rn.f16x2.e5m2x2 %0, l;\n"
        "cvt.rn.f16x2.e5m2x2 %1, h; }"
        : "=r"(low), "=r"(high)
        : "r"(word));
  }
}

template <Dtype kDtypeB>
__device__ __forceinline__ void mma_unpacked(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  const unsigned b[2] = {b0, b1};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned a16[4], low, high;
    unpack_fp8<Dtype::kE4m3>(a[2 * half], a16[0], a16[2]);
    unpack_fp8<Dtype::kE4m3>(a[2 * half + 1], a16[1], a16[3]);
    unpack_fp8<kDtypeB>(b[half], low, high);
    mma_m16n8k16_fp16(d, a16, low, high);
  }
}

template <>
__device__ __forceinline__ void mma<Dtype::kE4m3>(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  kUnpack ? mma_unpacked<Dtype::kE4m3>(d, a, b0, b1) : mma_m16n8k32<Dtype::kE4m3>(d, a, b0, b1);
}

template <>
__device__ __forceinline__ void mma<Dtype::kE5m2>(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  kUnpack ? mma_unpacked<Dtype::kE5m2>(d, a, b0, b1) : mma_m16n8k32<Dtype::kE5m2>(d, a, b0, b1);
}

}  // namespace attune
