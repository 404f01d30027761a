// SPDX-License-Identifier: Apache-2.0
// Selects bytes of two registers (PTX ISA 9.7.9.7). Does any logical operation of three words in
// one instruction (9.7.8.6); compilers make two of such an operation with two constants.
#pragma once

namespace attune {

// Hexadecimal digit i of `selector` says which byte of {low, high} becomes byte i of the result. A
// digit d from 8 on repeats the sign bit of byte d - 8 eight times.
__device__ __forceinline__ unsigned permuted(unsigned low, unsigned high, unsigned selector) {
  unsigned bytes = 0;
#ifdef __CUDA_ARCH__
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
#else
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = selector >> 4 * i & 15;
    const unsigned byte = (digit & 4 ? high : low) >> 8 * (digit & 3) & 0xFF;
    bytes |= (digit < 8 ? byte : byte < 128 ? 0u : 0xFFu) << 8 * i;
  }
#endif
  return bytes;
}

constexpr int kA = 0xF0, kB = 0xCC, kC = 0xAA;  // an operation of these gives its table

// Returns the operation with the table kTable.
template <int kTable>
__device__ __forceinline__ unsigned lop3(unsigned a, unsigned b, unsigned c) {
  unsigned bits = 0;
#ifdef __CUDA_ARCH__
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(a), "r"(b), "r"(c), "n"(kTable));
#else
  for (int i = 0; i < 32; ++i) {
    const unsigned row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
    bits |= (static_cast<unsigned>(kTable) >> row & 1) << i;
  }
#endif
  return bits;
}

}  // namespace attune
