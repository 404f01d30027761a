// SPDX-License-Identifier: Apache-2.0
// A counter that tells the last of several groups of threads that all groups have written their
// parts to global memory (PTX ISA 9.7.13.6, atom; 8.9, causality order).
#pragma once

namespace attune {

// Returns true for the last of `count` groups; everything that the other groups wrote is then
// visible to it. One thread of the group calls this. A barrier of the group must lie between the
// group's writes and the call, and one between the call and its reads. The counter is 0 before the
// first group and after the last.
__device__ __forceinline__ bool takes_last_ticket(unsigned* counter, int count) {
  const auto last = static_cast<unsigned>(count - 1);
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(last)
               : "memory");
  return before == last;
}

}  // namespace attune
