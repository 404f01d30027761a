// SPDX-License-Identifier: Apache-2.0
// Scales sums of products of the places that dropout keeps.
#pragma once

#include "shared/dropout_args.h"

namespace attune {

template <int kCount>
__device__ __forceinline__ void scale_kept(const DropoutArgs& dropout, float (&sums)[kCount]) {
#pragma unroll
  for (float& sum : sums) sum *= dropout.scale;
}

}  // namespace attune
