// SPDX-License-Identifier: Apache-2.0
// Special registers (PTX ISA 10), and functions that fix where a value is computed.
#pragma once

namespace attune {

// Returns threadIdx.x, read again at every call. The compiler cannot hoist computations with it out
// of a loop, where their results would hold registers for the whole loop.
__device__ __forceinline__ int reread_thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// Returns `value`. The compiler cannot move computations with the result before this place.
__device__ __forceinline__ int reread(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

__device__ __forceinline__ float reread(float value) {
  asm volatile("" : "+f"(value));
  return value;
}

template <class T>
__device__ __forceinline__ const T* reread(const T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

}  // namespace attune
