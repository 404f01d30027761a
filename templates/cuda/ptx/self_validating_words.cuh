// SPDX-License-Identifier: Apache-2.0
// Self-validating words: floats in global memory whose value says if they were written. All bits
// zero means not yet written, so a zero is written as -0. Readers need neither a fence nor a
// counter, because each word is written as a whole (PTX ISA 8.2.1, vector accesses; 8.7, relaxed
// and strong at the scope of the device).
#pragma once

#include "cuda/ptx/mbarrier.cuh"

namespace attune {

__device__ __forceinline__ bool is_written(float value) { return __float_as_uint(value) != 0; }
__device__ __forceinline__ bool is_written(const float2& value) {
  return is_written(value.x) && is_written(value.y);
}
__device__ __forceinline__ bool is_written(const float4& value) {
  return is_written(value.x) && is_written(value.y) && is_written(value.z) && is_written(value.w);
}

constexpr unsigned kMinusZero = 1u << 31;  // as bits, because compilers may treat -0.0f as 0.0f

__device__ __forceinline__ unsigned nonzero_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits == 0 ? kMinusZero : bits;
}
// Clears words with relaxed stores at gpu scope, like store_valid, so that all threads see the
// stores to a word in one order.
__device__ __forceinline__ void clear_words(float2* to) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %1};" ::"l"(to), "r"(0) : "memory");
}
__device__ __forceinline__ void clear_words(float4* to) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(to), "r"(0) : "memory");
}
// Stores to an 8-byte aligned address.
__device__ __forceinline__ void store_valid(float2* to, float2 value) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(nonzero_bits(value.x)),
               "r"(nonzero_bits(value.y))
               : "memory");
}
__device__ __forceinline__ float2 load_words(const float2* from) {
  float2 value;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "l"(from)
               : "memory");
  return value;
}
// Loads from a 16-byte aligned address.
__device__ __forceinline__ float4 load_words(const float4* from) {
  float4 value;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

// Calls `look()` until it returns true. The wait is bounded like waits at barriers; a call takes
// about a microsecond.
template <class Look>
__device__ __forceinline__ void look_until(const Look& look) {
  for (unsigned tries = 0; tries < kMaxBarrierTries; ++tries)
    if (look()) return;
  __trap();
}

}  // namespace attune
