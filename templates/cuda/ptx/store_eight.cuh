// SPDX-License-Identifier: Apache-2.0
// Stores eight elements, the inverse of eight_elements.cuh; values are rounded to nearest even.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Stores eight elements at a 16-byte aligned address.
template <Dtype kDtype>
__device__ __forceinline__ void store_eight(void* data, long long index, const float* values) {
  if constexpr (kDtype == Dtype::kFp32) {
    Vector16 low, high;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low.word[i] = __float_as_uint(values[i]);
      high.word[i] = __float_as_uint(values[i + 4]);
    }
    auto* to = reinterpret_cast<Vector16*>(static_cast<float*>(data) + index);
    to[0] = low, to[1] = high;
  } else {
    Vector16 packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // From sm_80 on one instruction packs two bf16.
      if constexpr (kDtype == Dtype::kFp16 || kArch >= 80)
        packed.word[i] = pack<kDtype>(values[2 * i], values[2 * i + 1]);
      else
        packed.word[i] = float_to_bf16(values[2 * i]) |
                         static_cast<unsigned>(float_to_bf16(values[2 * i + 1])) << 16;
    }
    *reinterpret_cast<Vector16*>(static_cast<unsigned short*>(data) + index) = packed;
  }
}

}  // namespace attune
