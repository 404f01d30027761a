// SPDX-License-Identifier: Apache-2.0
// mbarrier: shared-memory barriers that count thread arrivals and bytes delivered by TMA (PTX ISA
// 9.7.13.15, sm_90). Barriers are named by their shared-memory address. Every wait is bounded: a
// protocol error traps instead of hanging the device. The bound has no measured cost. With
// ATTUNE_BOUNDED_WAITS=1 the failing wait also prints the barrier's name as a device assertion. The
// assertion is a function call, for which ptxas serialises wgmma (C7510). Use it to find errors,
// not for timing.
#pragma once

#ifndef ATTUNE_BOUNDED_WAITS
#define ATTUNE_BOUNDED_WAITS 0
#endif

#if ATTUNE_BOUNDED_WAITS
extern "C" __device__ void __assertfail(const char* message, const char* file, unsigned line,
                                        const char* function, decltype(sizeof(0)) char_bytes);
#endif

namespace attune {

// Tries before a wait counts as hung. One try suspends for up to about a microsecond, so a wait may
// take seconds.
constexpr unsigned kMaxBarrierTries = 4000000;

__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the async proxy (TMA); follow it with __syncthreads.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives if `condition` holds, without a branch.
__device__ __forceinline__ void mbarrier_arrive_if(bool condition, unsigned barrier) {
  asm volatile(
      "{ .reg .pred p;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0]; }" ::"r"(barrier),
      "r"(static_cast<unsigned>(condition))
      : "memory");
}

// True if the phase of the given parity has completed; does not wait.
__device__ __forceinline__ bool mbarrier_test(unsigned barrier, unsigned parity) {
  unsigned done;
  asm volatile(
      "{ .reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}

// Arrives once and announces `bytes` that TMA will deliver in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits for the phase of the given parity to complete. A fresh barrier is in phase 0: waiting for
// parity 1 passes at once.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity, const char* name) {
#if ATTUNE_BOUNDED_WAITS
  for (unsigned tries = 0; tries < kMaxBarrierTries; ++tries) {
    unsigned done;
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (done) return;
  }
  __assertfail("barrier completes", name, parity, "mbarrier_wait", 1);
#else
  (void)name;
  asm volatile(
      "{ .reg .pred p; .reg .u32 tries;\n"
      "mov.u32 tries, 0;\n"
      "ATTUNE_WAIT_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra ATTUNE_DONE_%=;\n"
      "add.u32 tries, tries, 1;\n"
      "setp.gt.u32 p, tries, %2;\n"
      "@p trap;\n"
      "bra ATTUNE_WAIT_%=;\n"
      "ATTUNE_DONE_%=: }" ::"r"(barrier),
      "r"(parity), "n"(kMaxBarrierTries)
      : "memory");
#endif
}

}  // namespace attune
