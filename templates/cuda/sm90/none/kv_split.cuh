// SPDX-License-Identifier: Apache-2.0
// A tile that one block computes alone. Twin of kv_split.cuh.
#pragma once

namespace none {

template <class... Arguments>
__device__ __forceinline__ void join_tile(const Arguments&...) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
