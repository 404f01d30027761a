// SPDX-License-Identifier: Apache-2.0
// Caches without factors of groups of columns: pack_groups.cuh without effect.
#pragma once

namespace none {

enum NoGroupArgs { groups };  // not an object: that would take memory
struct NoGroups {};

template <class Row>
__device__ __forceinline__ NoGroups groups_of_k(NoGroupArgs, const Row&, unsigned) {
  return {};
}
template <class Row>
__device__ __forceinline__ NoGroups groups_of_v(NoGroupArgs, const Row&, unsigned) {
  return {};
}
template <int kHeadDim, class... Rest>
__device__ __forceinline__ void pack_eight(const Rest&...) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
