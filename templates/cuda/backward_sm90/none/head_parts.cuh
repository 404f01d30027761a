// SPDX-License-Identifier: Apache-2.0
// Work tiles that take all heads of Q of a group. They store gradients, so there are no sums to
// join.
#pragma once

namespace none {

constexpr bool kSplitsHeads = false;
constexpr int kSliceOfDv = 0;

struct HeadPart {
  enum : int { head_begin = 0, heads = attune::kGqaRatio, slice = 0 };
};

struct HeadParts {
  enum : int { count = 1, heads = attune::kGqaRatio };
  template <class Args>
  __device__ __forceinline__ HeadParts(const Args&, int) {}
  __device__ __forceinline__ static int head(int place) { return place; }
  template <class Args>
  __device__ __forceinline__ static HeadPart part(const Args&, int, int) {
    return {};
  }
};

template <class... Arguments>
__device__ __forceinline__ void store_sums(const Arguments&...) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
