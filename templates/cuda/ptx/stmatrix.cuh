// SPDX-License-Identifier: Apache-2.0
// stmatrix: a warp stores 8x8 matrices of 16-bit elements from accumulator-shaped registers (PTX
// ISA 9.7.14.5.16, sm_90). Lane l gives the shared address of row l % 8 of matrix l / 8 (x2: lanes
// 0..15).
#pragma once

namespace attune {

__device__ __forceinline__ void stmatrix_x4(unsigned shared_address, const unsigned (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

__device__ __forceinline__ void stmatrix_x2(unsigned shared_address, unsigned r0, unsigned r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(shared_address),
               "r"(r0), "r"(r1)
               : "memory");
}

// stmatrix of transposed matrices (PTX ISA 9.7.14.5.16, sm_90); otherwise like stmatrix.cuh.

// Stores each matrix transposed: a column of accumulators becomes a row of shared memory.
__device__ __forceinline__ void stmatrix_x4_transposed(unsigned shared_address,
                                                       const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Transposes an 8 x 8 tile of 16-bit elements in the registers of a warp. Four lanes hold a row,
// two elements each (PTX ISA 9.7.14.5.17, sm_75).

__device__ __forceinline__ unsigned movmatrix_transposed(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

}  // namespace attune
