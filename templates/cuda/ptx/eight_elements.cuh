// SPDX-License-Identifier: Apache-2.0
// Eight elements of fp32, bf16 or fp16 between memory and registers, in accesses of 16 bytes.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Eight elements at a 16-byte aligned place.
template <Dtype kDtype>
__device__ __forceinline__ void load_eight(const void* data, long long index, float* values) {
  if constexpr (kDtype == Dtype::kFp32) {
    const auto* from = reinterpret_cast<const Vector16*>(static_cast<const float*>(data) + index);
    const Vector16 low = from[0], high = from[1];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = __uint_as_float(low.word[i]);
      values[i + 4] = __uint_as_float(high.word[i]);
    }
  } else {
    const Vector16 packed =
        *reinterpret_cast<const Vector16*>(static_cast<const unsigned short*>(data) + index);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto bits = static_cast<unsigned short>(packed.word[i / 2] >> (i % 2 * 16));
      values[i] = kDtype == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
    }
  }
}

}  // namespace attune
