// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/mma_fp8.cuh where a kernel runs in fibers.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/mma.cuh"

namespace attune {

template <Dtype kDtype>
void unpack_fp8(unsigned word, unsigned& low, unsigned& high) {
  const auto value = [word](int i) { return load_element(kDtype, &word, i); };
  low = pack<Dtype::kFp16>(value(0), value(1));
  high = pack<Dtype::kFp16>(value(2), value(3));
}

}  // namespace attune
