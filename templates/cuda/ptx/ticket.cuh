// SPDX-License-Identifier: Apache-2.0
// A counter by which groups of threads that leave parts in global memory learn who is last (PTX ISA
// 9.7.13.6, atom; 8.9, causality order).
#pragma once

namespace attune {

// By one thread of a group, behind a barrier of the group that follows its writes and ahead of one
// that precedes its reads: true for the last of `count`, to which all that the others wrote is
// visible. The counter is 0 before the first and behind the last.
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
