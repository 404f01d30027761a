// SPDX-License-Identifier: Apache-2.0
// Multiplies the scores and weights of a block of keys by the keys' factors.
#pragma once

#include "cpu/decode/decode_rows.hpp"
#include "shared/kernel_arguments.h"
#include "shared/key_factors.h"

namespace attune {

// The factors of a block's keys (KeyBlock in decode_steps.hpp).
struct KeyFactors {
  // Finds the factors of the key `at` a place in the cache; `place` is its place in the block.
  void find(const KernelArguments& args, KeyPlace at, int place) {
    k_[place] = key_factor_at(args.scales.k_scale, at.page, at.row, 0);
    v_[place] = key_factor_at(args.scales.v_scale, at.page, at.row, 0);
  }

  template <class Block>
  void apply_to_scores(const KernelArguments& args, const Block& block, int kv_head,
                       float* scores) const {
    apply(args.scales.k_scale, k_, block, kv_head, false, scores);
  }
  // A weight of 0 stays 0, whatever the factor.
  template <class Block>
  void apply_to_weights(const KernelArguments& args, const Block& block, int kv_head,
                        float* weights) const {
    apply(args.scales.v_scale, v_, block, kv_head, true, weights);
  }

  template <class Block>
  static void apply(const ScaleView& scale, const long long* at, const Block& block, int kv_head,
                    bool are_weights, float* values) {
    const long long head = kv_head / scale.heads_per_scale * scale.head_stride;
    for (int place = 0; place < block.places; ++place) {
      const bool stays = are_weights && values[place] == 0;
      if (!stays && block.has(place)) values[place] *= scale.data[at[place] + head];
    }
  }

  long long k_[kDecodeBlockKeys], v_[kDecodeBlockKeys];  // where the factors of head 0 are
};

}  // namespace attune
