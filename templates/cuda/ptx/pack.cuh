// SPDX-License-Identifier: Apache-2.0
// cvt.rn.{bf16x2,f16x2}.f32: two floats rounded to 16 bits and packed, the first in the low half (PTX ISA 9.7.9.21).
#pragma once

#include "shared/attention_enums.h"

namespace attune {

template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_pair(float low, float high) {
  static_assert(kDtype == Dtype::kBf16 || kDtype == Dtype::kFp16, "pack_pair makes bf16 or fp16");
  unsigned packed;
  if constexpr (kDtype == Dtype::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

}  // namespace attune
