// SPDX-License-Identifier: Apache-2.0
// Tensor maps that a kernel of dK and dV does not take, because it makes only one of the two.
#pragma once

namespace none {

enum AbsentMap { map_v, map_dk, map_dv };

// Returns null. The address of a map that there is: keys_roles.cuh.
__device__ __forceinline__ decltype(nullptr) address_of(AbsentMap) { return nullptr; }

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
