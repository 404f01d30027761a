// SPDX-License-Identifier: Apache-2.0
// Multiplies sums over the elements that dropout keeps by the dropout scale.
#pragma once

#include "shared/dropout_args.h"

namespace attune {

template <int kCount>
__device__ __forceinline__ void scale_kept(const DropoutArgs& dropout, float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) sum *= dropout.scale;
}

}  // namespace attune
