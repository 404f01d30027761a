// SPDX-License-Identifier: Apache-2.0
// Loads of data in global memory that is read once; they bypass L1 (PTX ISA 9.7.9.8). Loads that
// are adjacent in the source are in flight together, because the compiler neither moves nor removes
// one.
#pragma once

#include "cuda/ptx/eight_elements.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Loads 16 bytes from a 16-byte aligned address.
__device__ __forceinline__ Vector16 load_streamed_16(const void* from) {
  Vector16 value;
  asm volatile("ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "l"(from));
  return value;
}

// Loads eight elements from a 16-byte aligned address and does not unpack them.
template <Dtype kDtype>
__device__ __forceinline__ EightPacked<kDtype> load_streamed_eight(const void* data,
                                                                   long long index) {
  using Packed = EightPacked<kDtype>;
  const auto* from = static_cast<const char*>(data) + index * Packed::kElementBytes;
  Packed packed;
#pragma unroll
  for (int i = 0; i < Packed::kParts; ++i) packed.part[i] = load_streamed_16(from + 16 * i);
  return packed;
}

}  // namespace attune
