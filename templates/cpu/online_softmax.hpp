// SPDX-License-Identifier: Apache-2.0
// Softmax over blocks of keys (Milakov and Gimelshein 2018), one query a lane, in base 2: queries
// are scaled by softmax_scale * log2(e) when they are loaded.
#pragma once

#include "cpu/simd.hpp"

namespace attune {

// State over the keys seen so far: the largest score, and the sum of 2^(score - largest).
struct SoftmaxState {
  Panel largest;
  Panel sum;
};

// Turns `count` scores into weights 2^(score - largest); returns what sums and outputs made before
// must be multiplied by. While a row has seen nothing, its largest score counts as -3e38: so -inf -
// (-inf) cannot arise, and its weights are 0. Behind a score stage (ALiBi) many keys may weigh next
// to nothing: below 2^-100 it counts as 0, so that products with V are no denormals, which some
// CPUs are slow at. A block's weights are summed by themselves: added one by one to the sum of a
// long row, which is much larger, each would lose as many bits, all the same way where scores are
// alike.
inline Panel softmax_block(SoftmaxState& state, Panel block_largest, int count, Panel* scores) {
  const Panel largest = larger(block_largest, state.largest);
  const Panel base = larger(largest, Panel(-3e38f));
  const Panel decay = exp2_nonpositive(state.largest - base);
  Panel sum(0.0f);
  for (int n = 0; n < count; ++n) {
    const Panel distance = scores[n] - base;  // where kScored
    scores[n] = exp2_nonpositive(scores[n] - base);
    scores[n] = distance < -100.0f ? Panel(0.0f) : scores[n];  // where kScored
    sum += scores[n];
  }
  state = {largest, state.sum * decay + sum};
  return decay;
}

}  // namespace attune
