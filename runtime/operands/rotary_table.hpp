// SPDX-License-Identifier: Apache-2.0
// Angles of rotary embeddings, computed as in transformers (modeling_rope_utils). Frequencies and
// angles are rounded to fp32, because models were trained with this rounding.
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
  std::vector<float> frequencies{};  // used instead of base and scaling unless empty
};

// Throws kInvalidArgument if a field is out of range.
void check_rotary(const Rotary& rotary);
// Returns the frequency of each pair of columns, in radians per position.
std::vector<float> rotary_frequencies(const Rotary& rotary);
// Returns the factor of cosines and sines.
float rotary_magnitude(const Rotary& rotary);
// Writes cos and sin, each [num_positions, dim / 2].
void rotary_table(const Rotary& rotary, int64_t first_position, int64_t num_positions, float* cos,
                  float* sin);

}  // namespace attune
