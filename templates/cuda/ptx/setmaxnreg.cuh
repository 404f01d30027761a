// SPDX-License-Identifier: Apache-2.0
// setmaxnreg: moves registers between warpgroups of a block (PTX ISA 9.7.19.5, sm_90a). The pool is
// the registers of the launch. If the new counts of all warpgroups add up to more, the block hangs
// in `inc`.
#pragma once

namespace attune {

// Every thread of a warpgroup must execute these.
template <int kRegisters>
__device__ __forceinline__ void register_decrease() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256,
                "setmaxnreg takes multiples of 8 in [24, 256]");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void register_increase() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256,
                "setmaxnreg takes multiples of 8 in [24, 256]");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace attune
