// SPDX-License-Identifier: Apache-2.0
// Loads eight elements of fp32, bf16 or fp16 in accesses of 16 bytes.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Eight elements in the format of memory.
template <Dtype kDtype>
struct EightPacked {
  static constexpr int kElementBytes = kDtype == Dtype::kFp32 ? 4 : 2;
  static constexpr int kParts = 8 * kElementBytes / 16;
  Vector16 part[kParts];
};

template <Dtype kDtype>
__device__ __forceinline__ float unpacked(const EightPacked<kDtype>& packed, int i) {
  if constexpr (kDtype == Dtype::kFp32) return __uint_as_float(packed.part[i / 4].word[i % 4]);
  const auto bits = static_cast<unsigned short>(packed.part[0].word[i / 2] >> (i % 2 * 16));
  return kDtype == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

// Loads eight elements from a 16-byte aligned address, as fp32.
template <Dtype kDtype>
__device__ __forceinline__ void load_eight(const void* data, long long index, float* values) {
  using Packed = EightPacked<kDtype>;
  const Packed packed = *reinterpret_cast<const Packed*>(static_cast<const char*>(data) +
                                                         index * Packed::kElementBytes);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = unpacked(packed, i);
}

}  // namespace attune
