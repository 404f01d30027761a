// SPDX-License-Identifier: Apache-2.0
// Any logical operation of three words in one instruction (PTX ISA 9.7.8.6). Compilers make two of
// such an operation with two constants.
#pragma once

namespace attune {

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
