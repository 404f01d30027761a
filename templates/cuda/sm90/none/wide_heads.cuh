// SPDX-License-Identifier: Apache-2.0
// Heads of up to 256 columns: K and V are loaded and multiplied whole. Twin of k_parts.cuh and
// wide_loads.cuh.
#pragma once

namespace none {

constexpr bool kWideHeads = false;
constexpr int kKParts = 1;

template <class Map, class Cursor>
__device__ __forceinline__ void load_parts(unsigned, const Map&, Cursor&, int, int, int) {}
template <class Map, class Cursor>
__device__ __forceinline__ void load_slice(unsigned, const Map&, Cursor&, int, int, int, int) {}
template <class Walk, int kCount>
__device__ __forceinline__ void issue_qk_parts(float (&)[kCount], unsigned, Walk&, unsigned*) {}
template <int kBehind>
__device__ __forceinline__ void release_k_parts(unsigned, int) {}
template <class Walk>
__device__ __forceinline__ void skip_k_parts(Walk&, int) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
