// SPDX-License-Identifier: Apache-2.0
// Adds a box of fp32 values in shared memory to a tensor in global memory (PTX ISA 9.7.9.27.1.3,
// sm_90). Like tma_store(), the copy joins the calling thread's open bulk group.
#pragma once

#include "cuda/ptx/tma.cuh"

namespace attune {

__device__ __forceinline__ void tma_add(const TensorMap& map, unsigned shared_address,
                                        TensorCoord at) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], "
      "[%1];" ::"l"(&map),
      "r"(shared_address), "r"(at.head_dim), "r"(at.row), "r"(at.head), "r"(at.batch)
      : "memory");
}

}  // namespace attune
