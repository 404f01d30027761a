// SPDX-License-Identifier: Apache-2.0
// A box of a tensor in shared memory that is added, as fp32, to what the tensor has (PTX ISA
// 9.7.9.27.1.3, sm_90). Part of the issuing thread's open bulk group, as tma_store() is.
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
