// SPDX-License-Identifier: Apache-2.0
// Heads of up to 256 columns: K is multiplied whole.
#pragma once

namespace none {

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
