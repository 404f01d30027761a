// SPDX-License-Identifier: Apache-2.0
// cp.async: copies of 16 bytes from global to shared memory that bypass registers and L1, and of a
// word (PTX ISA 9.7.9.25.3, sm_80). A thread commits its copies in groups and waits for all but the
// youngest groups, or a barrier counts them (9.7.13.15.17; sm_80, but this form sm_90).
#pragma once

namespace attune {

// Copies `bytes` (0 or 16) and fills the rest of the 16 with zeros; with 0 bytes the global address
// is not read. kPrefetchBytes says how much of the surrounding memory L2 should fetch: 128 or 256
// bytes, or 0 to leave it to L2.
template <int kPrefetchBytes>
__device__ __forceinline__ void cp_async_16(unsigned shared_address, const void* global,
                                            int bytes) {
  static_assert(kPrefetchBytes == 0 || kPrefetchBytes == 128 || kPrefetchBytes == 256,
                "the L2 prefetch hint is 0, 128 or 256 bytes");
  if constexpr (kPrefetchBytes == 128) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address),
                 "l"(global), "r"(bytes)
                 : "memory");
  } else if constexpr (kPrefetchBytes == 256) {
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(shared_address),
                 "l"(global), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
                 "r"(bytes)
                 : "memory");
  }
}

// Copies 4 bytes. If `bytes` is 0, writes zero instead and does not read the global address. The
// copy joins this thread's open group.
__device__ __forceinline__ void cp_async_4(unsigned shared_address, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

// Copies 8 bytes, or writes zeros, as cp_async_4 does.
__device__ __forceinline__ void cp_async_8(unsigned shared_address, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address), "l"(global),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups are in flight. To read other threads'
// copies, a barrier must follow.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Arrives at the barrier once all earlier copies of this thread are complete. This arrival is one
// of the count that the barrier was initialised with.
__device__ __forceinline__ void cp_async_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace attune
