// SPDX-License-Identifier: Apache-2.0
// Argument structs that a kernel does not take: empty, and made from the name of the kernel's
// parameter. Where a kernel has the struct or the parameter, that one hides these.
#pragma once

namespace none {

enum Absent { scales, scores, dropout, map, cache };  // not objects: those would take memory

struct ScaleArgs {
  __device__ constexpr ScaleArgs(Absent) {}
};
struct ScoreArgs {
  __device__ constexpr ScoreArgs(Absent) {}
};
struct DropoutArgs {
  __device__ constexpr DropoutArgs(Absent) {}
};
struct BlockMapArgs {
  __device__ constexpr BlockMapArgs(Absent) {}
};
struct CacheArgs {
  __device__ constexpr CacheArgs(Absent) {}
};

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
