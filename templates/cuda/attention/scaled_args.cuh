// SPDX-License-Identifier: Apache-2.0
// The argument parts of a kernel with 8-bit operands (shared/kernel_arguments.h), as its functions
// hand them on. Functions that need no factors take the base.
#pragma once

#include "shared/kernel_arguments.h"

namespace attune {

struct ScaledArgs {
  const AttentionArgs& base;
  const ScaleArgs& scales;

  __device__ __forceinline__ operator const AttentionArgs&() const { return base; }
};

}  // namespace attune
