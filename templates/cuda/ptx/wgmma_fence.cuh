// SPDX-License-Identifier: Apache-2.0
// Ordering of wgmma, the asynchronous matrix product of a warpgroup (PTX ISA 9.7.15.7, sm_90a), and
// its shared-memory descriptors. The products themselves are generated
// (generator/render/wgmma_emitter.hpp, "generated/wgmma.cuh").
#pragma once

namespace attune {

// Orders earlier register writes before the wgmma that follow. Call it after accumulators or A
// registers were written.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending committed groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving reads of an accumulator above the wait that completes it.
template <int kCount>
__device__ __forceinline__ void wgmma_pin(float (&accumulator)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(accumulator[i])::"memory");
}

// Matrix descriptor of a tile in panels of kRowBytes-byte rows, swizzled over a row
// (shared/layouts/prefill_sm90_layout.h). Bits 0-13 address / 16, 16-29 leading offset / 16, 32-45
// stride offset / 16, 62-63 swizzle.
//   K-major (Q, K, V transposed): stride offset 8 rows; the leading offset is not used.
//   MN-major (V):                 stride offset 8 keys; leading offset = bytes of one panel.
// Only the low half differs between tiles; adding to it moves to another tile.
__device__ __forceinline__ unsigned wgmma_descriptor_low(unsigned shared_address,
                                                         unsigned leading_bytes) {
  return ((shared_address & 0x3FFFFu) >> 4) | ((leading_bytes >> 4) << 16);
}

template <int kRowBytes>
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned low) {
  static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128,
                "swizzled rows have 32, 64 or 128 bytes");
  constexpr unsigned long long kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  constexpr unsigned long long kStride = (8ull * kRowBytes >> 4) << 32;
  return kSwizzle << 62 | kStride | low;
}

}  // namespace attune
