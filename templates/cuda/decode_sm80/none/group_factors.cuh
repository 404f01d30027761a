// SPDX-License-Identifier: Apache-2.0
// Caches without factors of groups of columns: group_factors.cuh without effect.
#pragma once

namespace none {

enum { kGroupArrivals = 0, kGroupSlotBytes = 0 };
enum AbsentGroups { groups };  // not an object: that would take memory
struct GroupFactorArgs {
  __device__ constexpr GroupFactorArgs(AbsentGroups) {}
};

struct GroupsAddress {};

struct GroupRing {
  __device__ __forceinline__ GroupRing(GroupFactorArgs, unsigned, int) {}
  __device__ __forceinline__ GroupsAddress slot(int) const { return {}; }
  __device__ __forceinline__ void take(int) const {}
  __device__ __forceinline__ void copy(int, int, int, bool, unsigned) const {}
};

__device__ __forceinline__ float without_unit(float value) { return value; }

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
