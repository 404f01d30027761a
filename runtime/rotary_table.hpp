// SPDX-License-Identifier: Apache-2.0
// Angles of rotary embeddings as transformers makes them (modeling_rope_utils): frequencies and angles are rounded to fp32, because models were
// trained with that rounding.
#pragma once

#include <cstdint>
#include <vector>

namespace attune {

enum class RotaryScaling : int { kPlain = 0, kLinear = 1, kLlama3 = 2, kYarn = 3 };

// The fields of attune_rotary.
struct Rotary {
  int dim = 0;
  RotaryScaling scaling = RotaryScaling::kPlain;
  float base = 10000, factor = 1;
  float low_freq_factor = 1, high_freq_factor = 4;
  float beta_fast = 32, beta_slow = 1;
  float mscale = 0, mscale_all_dim = 0, attention_factor = 0;
  int original_max_position = 0;
  std::vector<float> frequencies{};  // where they are not to follow from base and scaling
};

// Throws kInvalidArgument.
void check_rotary(const Rotary& rotary);
// Of each pair of columns, in radians a position.
std::vector<float> rotary_frequencies(const Rotary& rotary);
// What cosines and sines are multiplied by.
float rotary_magnitude(const Rotary& rotary);
// [num_positions, dim / 2] each.
void rotary_table(const Rotary& rotary, int64_t first_position, int64_t num_positions, float* cos,
                  float* sin);

}  // namespace attune
