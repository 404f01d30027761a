// SPDX-License-Identifier: Apache-2.0
// pack() of convert.cuh with zeros for what is negative (PTX ISA 9.7.9.22, .relu; from sm_80 on).
#pragma once

#include "shared/attention_enums.h"

namespace attune {

template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_positive(float low, float high) {
  static_assert(kDtype == Dtype::kFp16 || kDtype == Dtype::kBf16, "it makes fp16 or bf16");
  unsigned packed;
  if constexpr (kDtype == Dtype::kBf16) {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

}  // namespace attune
