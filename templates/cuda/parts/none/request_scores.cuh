// SPDX-License-Identifier: Apache-2.0
// Score programs that read no lengths: all requests have the arguments of the call.
#pragma once

#include "cuda/parts/kernel_parts.cuh"

namespace none {

template <class Args>
using ScoresOfRequest = attune::Reference<Args>;

template <class Request, class Args>
__device__ __forceinline__ void take_lengths(const Request&, const Args*) {}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
