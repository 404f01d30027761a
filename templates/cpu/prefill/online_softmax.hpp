// SPDX-License-Identifier: Apache-2.0
// Softmax over blocks of keys (Milakov and Gimelshein 2018), one query per lane, in base 2. Queries
// are scaled by softmax_scale * log2(e) when they are loaded.
#pragma once

#include "cpu/parts/none/features.hpp"
#include "cpu/parts/simd.hpp"

namespace attune {

// State over the keys seen so far: the largest score, and the sum of 2^(score - largest).
struct SoftmaxState {
  Panel largest;
  Panel sum;
};

// Turns `count` scores into weights 2^(score - largest); returns the factor of the earlier sums and
// outputs. While a row has seen no key, its largest score counts as -3e38, so that -inf - (-inf)
// cannot arise and its weights are 0. After a score stage (ALiBi) many keys may have tiny weights.
// A weight below 2^-100 counts as 0, because its products with V could be denormals, which are slow
// on some CPUs. A block's weights are summed separately. Added one by one to the much larger sum of
// a long row, each weight would lose bits, and in the same direction if scores are similar.
inline Panel softmax_block(SoftmaxState& state, Panel block_largest, int count, Panel* scores) {
  const Panel largest = larger(block_largest, state.largest);
  const Panel base = larger(largest, Panel(-3e38f));
  const Panel decay = exp2_nonpositive(state.largest - base);
  Panel sum(0.0f);
  for (int n = 0; n < count; ++n) {
    const Panel distance = scores[n] - base;
    scores[n] = exp2_nonpositive(distance);
    if constexpr (kScored) scores[n] = distance < -100.0f ? Panel(0.0f) : scores[n];
    sum += scores[n];
  }
  state = {largest, state.sum * decay + sum};
  return decay;
}

}  // namespace attune
