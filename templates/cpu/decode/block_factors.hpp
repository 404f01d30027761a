// SPDX-License-Identifier: Apache-2.0
// Multiplies the scores or weights of a block of keys by the factors of these keys. decode_cpu
// includes it if kKeyFactors.
#pragma once

#include "cpu/decode/decode_steps.hpp"
#include "shared/key_factors.h"

namespace attune {

// `at`: indices of the factors of the places, for head 0. `are_weights`: a weight of 0 stays 0,
// whatever the factor.
inline void apply_factors(const ScaleView& scale, const long long* at, const KeyBlock& block,
                          int kv_head, bool are_weights, float* values) {
  const long long head = kv_head / scale.heads_per_scale * scale.head_stride;
  for (int place = 0; place < block.places; ++place) {
    const bool stays = are_weights && values[place] == 0;
    if (!stays && block.key_at(place) < block.count) values[place] *= scale.data[at[place] + head];
  }
}

inline void apply_k_factors(const ScaleArgs& scales, const KeyBlock& block, int kv_head,
                            float* scores) {
  apply_factors(scales.k_scale, block.k_factor, block, kv_head, false, scores);
}
inline void apply_v_factors(const ScaleArgs& scales, const KeyBlock& block, int kv_head,
                            float* weights) {
  apply_factors(scales.v_scale, block.v_factor, block, kv_head, true, weights);
}

}  // namespace attune
