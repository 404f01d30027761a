// SPDX-License-Identifier: Apache-2.0
// Shared memory by 32-bit address, as ldmatrix, cp.async and TMA take it, and plain accesses of
// words and 16 bytes (PTX ISA 9.7.9.8 to 9.7.9.12).
#pragma once

namespace attune {

struct alignas(16) Vector16 {
  unsigned word[4];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void store_shared_16(unsigned address, const Vector16& value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.word[0]),
               "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
               : "memory");
}

__device__ __forceinline__ Vector16 load_shared_16(unsigned address) {
  Vector16 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_shared_word(unsigned shared_address, int value) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(shared_address), "r"(value) : "memory");
}

// Stores the lowest kBits: 8, 16 or 32.
template <int kBits>
__device__ __forceinline__ void store_shared_bits(unsigned shared_address, unsigned bits) {
  static_assert(kBits == 8 || kBits == 16 || kBits == 32, "bytes, halves or words");
  if constexpr (kBits == 8)
    asm volatile(
        "{ .reg .b16 low; cvt.u16.u32 low, %1; st.shared.b8 [%0], low; }" ::"r"(shared_address),
        "r"(bits)
        : "memory");
  else if constexpr (kBits == 16)
    asm volatile(
        "{ .reg .b16 low; cvt.u16.u32 low, %1; st.shared.b16 [%0], low; }" ::"r"(shared_address),
        "r"(bits)
        : "memory");
  else
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared_address), "r"(bits) : "memory");
}

__device__ __forceinline__ unsigned load_shared_word(unsigned shared_address) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(shared_address) : "memory");
  return value;
}

// `shared_address` must be a multiple of 8.
__device__ __forceinline__ void load_shared_pair(unsigned shared_address, float* first,
                                                 float* second) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(*first), "=f"(*second)
               : "r"(shared_address)
               : "memory");
}

}  // namespace attune
