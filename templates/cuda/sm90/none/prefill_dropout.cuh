// SPDX-License-Identifier: Apache-2.0
// Dropout of a kernel that keeps every probability. Twin of prefill_dropout.cuh.
#pragma once

namespace none {

struct PrefillDropout {
  template <class Parts, class PrefillTile>
  __device__ __forceinline__ void begin(const Parts&, const PrefillTile&, int) {}
  __device__ __forceinline__ void make(int) {}
  template <int kCount>
  __device__ __forceinline__ void keep(unsigned (&)[kCount]) const {}
};

template <class Parts, class RowEnds>
__device__ __forceinline__ void scale_kept(const Parts&, RowEnds*) {}

template <class Args>
__device__ __forceinline__ void begin_dropout(const Args&) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
