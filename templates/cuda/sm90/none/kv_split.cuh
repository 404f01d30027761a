// SPDX-License-Identifier: Apache-2.0
// A tile that one block computes alone. Twin of kv_split.cuh.
#pragma once

namespace none {

struct OutputSlice {
  float o[2];
  RowStats rows;
  int first_chunk;
};

template <class... Arguments>
__device__ __forceinline__ bool join_splits(const Arguments&...) {
  return true;
}

template <class... Arguments>
__device__ __forceinline__ void store_slice(const Arguments&...) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
