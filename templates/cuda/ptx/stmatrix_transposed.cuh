// SPDX-License-Identifier: Apache-2.0
// stmatrix of transposed matrices (PTX ISA 9.7.14.5.16, sm_90); otherwise like stmatrix.cuh.
#pragma once

namespace attune {

// Stores each matrix transposed: a column of accumulators becomes a row of shared memory.
__device__ __forceinline__ void stmatrix_x4_transposed(unsigned shared_address,
                                                       const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

}  // namespace attune
