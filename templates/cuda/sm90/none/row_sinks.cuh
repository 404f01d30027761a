// SPDX-License-Identifier: Apache-2.0
// Rows of a kernel without sinks. Twin of row_sinks.cuh.
#pragma once

namespace none {

template <class Args, class ThreadRows, class RowEnds>
__device__ __forceinline__ void join_sinks(const Args&, ThreadRows, RowEnds*) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
