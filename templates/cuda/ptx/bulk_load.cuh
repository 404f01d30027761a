// SPDX-License-Identifier: Apache-2.0
// Bulk copy of contiguous bytes from global to shared memory (PTX ISA 9.7.9.25.4, sm_90). Addresses
// and size must be multiples of 16.
#pragma once

namespace attune {

// Copies `bytes` and counts them on `barrier`. One thread calls it.
__device__ __forceinline__ void bulk_load(unsigned shared_address, const void* global,
                                          unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace attune
