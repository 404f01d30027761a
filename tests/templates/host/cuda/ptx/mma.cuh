// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/mma.cuh where a kernel runs in fibers: the product of one warp,
// by the definition there. Words have two 16-bit elements or four of 8 bits.
#pragma once

#include "generator/core/problem/narrow_float.hpp"
#include "tests/templates/host/block_of_fibers.hpp"

namespace attune {

template <Dtype kDtype>
double dot_of_words(unsigned a, unsigned b) {
  double sum = 0;
  for (int i = 0; i < 4 / dtype_bytes(kDtype); ++i)
    sum += static_cast<double>(load_element(kDtype, &a, i)) * load_element(kDtype, &b, i);
  return sum;
}

template <Dtype kDtype>
void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
  BlockOfFibers::exchange(
      {{a[0], a[1], a[2], a[3], b0, b1}}, [&](const BlockOfFibers::Words* lanes) {
        for (unsigned i = 0; i < 4; ++i)
          for (unsigned k = 0; k < 8; ++k) {  // words of k: four lanes have two of them each
            const unsigned of_a = lanes[row * 4 + k % 4].word[k / 4 * 2 + i / 2];
            const unsigned of_b = lanes[(column + i % 2) * 4 + k % 4].word[4 + k / 4];
            d[i] += static_cast<float>(dot_of_words<kDtype>(of_a, of_b));
          }
        return 0;
      });
}

}  // namespace attune
