// SPDX-License-Identifier: Apache-2.0
// Workspaces that hold nothing that attune_prepare must set, besides the sums of rows.
#pragma once

namespace none {

template <class Args>
__device__ __forceinline__ void begin_launch(const Args&) {}
template <class Args>
__device__ __forceinline__ void begin_rows(const Args&, int, int) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
