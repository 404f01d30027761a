// SPDX-License-Identifier: Apache-2.0
// mma.sync: the matrix product of one warp, 16-bit operands, fp32 accumulators (PTX ISA
// 9.7.14.5.8). D[16 x 8] += A[16 x 16] B[16 x 8]; lane l holds, with r = l / 4 and c = 2 * (l % 4):
//   d[0..1]  row r,     columns c, c + 1      a[2]  row r,     k c + 8, c + 9
//   d[2..3]  row r + 8, columns c, c + 1      a[3]  row r + 8, k c + 8, c + 9
//   a[0]     row r,     k c, c + 1            b[0]  k c, c + 1,     column r
//   a[1]     row r + 8, k c, c + 1            b[1]  k c + 8, c + 9, column r
// sm_75 has only the k = 8 instruction, and only for fp16. Two such instructions on the same
// fragments make one k = 16 product.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

__device__ __forceinline__ void mma_m16n8k8_fp16(float (&d)[4], unsigned a0, unsigned a1,
                                                 unsigned b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, "
      "%2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

__device__ __forceinline__ void mma_m16n8k16_fp16(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Uses the instruction for the arch and dtype.
template <Dtype kDtype>
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  static_assert(kDtype == Dtype::kFp16 || (kDtype == Dtype::kBf16 && kArch >= 80),
                "mma.sync here takes fp16, and bf16 from sm_80 on");
  if constexpr (kArch < 80) {
    mma_m16n8k8_fp16(d, a[0], a[1], b0);
    mma_m16n8k8_fp16(d, a[2], a[3], b1);
  } else if constexpr (kDtype == Dtype::kFp16) {
    mma_m16n8k16_fp16(d, a, b0, b1);
  } else {
    mma_m16n8k16_bf16(d, a, b0, b1);
  }
}

}  // namespace attune
