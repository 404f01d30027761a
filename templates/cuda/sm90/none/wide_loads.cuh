// SPDX-License-Identifier: Apache-2.0
// Heads of up to 256 columns: K and V are loaded whole.
#pragma once

namespace none {

template <class Map, class Cursor>
__device__ __forceinline__ void load_parts(unsigned, const Map&, Cursor&, int, int, int) {}
template <class Map, class Cursor>
__device__ __forceinline__ void load_slice(unsigned, const Map&, Cursor&, int, int, int, int) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
