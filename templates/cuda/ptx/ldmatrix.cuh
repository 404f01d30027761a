// SPDX-License-Identifier: Apache-2.0
// ldmatrix: a warp loads 8x8 matrices of 16-bit elements from shared memory into mma.sync fragments
// (PTX ISA 9.7.14.5.15, sm_75). Lane l gives the shared address of row l % 8 of matrix l / 8; r[i]
// is the fragment of matrix i.
#pragma once

namespace attune {

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address)
               : "memory");
}

// Loads four matrices, each transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address)
               : "memory");
}

// Loads two matrices, each transposed; lanes 0..15 give the addresses.
__device__ __forceinline__ void ldmatrix_x2_trans(unsigned& r0, unsigned& r1,
                                                  unsigned shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(shared_address)
               : "memory");
}

}  // namespace attune
