// SPDX-License-Identifier: Apache-2.0
// An 8 x 8 tile of 16-bit elements that a warp holds, a row for four lanes, two elements each,
// transposed (PTX ISA 9.7.14.5.17, sm_75).
#pragma once

namespace attune {

__device__ __forceinline__ unsigned movmatrix_transposed(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

}  // namespace attune
