// SPDX-License-Identifier: Apache-2.0
// Caches of more than 4 bits: nibble_copies.cuh without effect.
#pragma once

namespace none {

template <class... Rest>
__device__ __forceinline__ void copy_nibble_tile(const Rest&...) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
