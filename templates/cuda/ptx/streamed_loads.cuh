// SPDX-License-Identifier: Apache-2.0
// Loads from global memory of what is read once, past L1 (PTX ISA 9.7.9.8). Those that stand together in the source are on their way together: the
// compiler neither moves nor leaves one out.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// 16-byte aligned.
__device__ __forceinline__ Vector16 load_streamed_16(const void* from) {
  Vector16 value;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "l"(from));
  return value;
}

// Eight elements of fp32, bf16 or fp16, as they stand in memory.
template <Dtype kDtype>
struct EightPacked {
  Vector16 part[kDtype == Dtype::kFp32 ? 2 : 1];
};

template <Dtype kDtype>
__device__ __forceinline__ EightPacked<kDtype> load_streamed_eight(const void* data,
                                                                   long long index) {
  constexpr int kBytes = kDtype == Dtype::kFp32 ? 4 : 2;
  const auto* from = static_cast<const char*>(data) + index * kBytes;
  EightPacked<kDtype> packed;
#pragma unroll
  for (int i = 0; i < kBytes / 2; ++i) packed.part[i] = load_streamed_16(from + 16 * i);
  return packed;
}

template <Dtype kDtype>
__device__ __forceinline__ float unpacked(const EightPacked<kDtype>& packed, int i) {
  if constexpr (kDtype == Dtype::kFp32) return __uint_as_float(packed.part[i / 4].word[i % 4]);
  const auto bits = static_cast<unsigned short>(packed.part[0].word[i / 2] >> (i % 2 * 16));
  return kDtype == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

}  // namespace attune
