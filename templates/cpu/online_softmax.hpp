// SPDX-License-Identifier: Apache-2.0
// Softmax over blocks of keys (Milakov and Gimelshein 2018), one query a lane, in base 2: queries are scaled by
// softmax_scale * log2(e) when they are loaded.
#pragma once

#include "cpu/tile_product.hpp"

namespace attune {

// Of the keys seen so far: the largest score, and the sum of 2^(score - largest).
struct SoftmaxState {
  Panel largest;
  Panel sum;
};

inline void reset(SoftmaxState& state) {
  for (int v = 0; v < kVectors; ++v) {
    state.largest[v] = splat(-kInfinity);
    state.sum[v] = splat(0.0f);
  }
}

// Turns `count` scores into weights 2^(score - largest); `decay` is what sums and outputs made before must be multiplied by.
// While a row has seen nothing, its largest score counts as -3e38: so -inf - (-inf) cannot arise, and its weights are 0.
inline void softmax_block(SoftmaxState& state, const Panel& block_largest, int count, Panel* scores, Panel& decay) {
  Floats base[kVectors];
  Floats sum[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Floats largest = larger(block_largest[v], state.largest[v]);
    base[v] = larger(largest, splat(-3e38f));
    decay[v] = exp2_nonpositive(state.largest[v] - base[v]);
    state.largest[v] = largest;
    sum[v] = state.sum[v] * decay[v];
  }
  for (int n = 0; n < count; ++n) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) {
      const Floats weight = exp2_nonpositive(scores[n][v] - base[v]);
      scores[n][v] = weight;
      sum[v] += weight;
    }
  }
  for (int v = 0; v < kVectors; ++v) state.sum[v] = sum[v];
}

}  // namespace attune
