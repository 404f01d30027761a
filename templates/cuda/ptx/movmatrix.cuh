// SPDX-License-Identifier: Apache-2.0
// Transposes an 8 x 8 tile of 16-bit elements in the registers of a warp. Four lanes hold a row,
// two elements each (PTX ISA 9.7.14.5.17, sm_75).
#pragma once

namespace attune {

__device__ __forceinline__ unsigned movmatrix_transposed(unsigned word) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
  return transposed;
}

}  // namespace attune
