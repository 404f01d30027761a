// SPDX-License-Identifier: Apache-2.0
// Frequencies and tables of rotary embeddings. See rotary_table.hpp.
#include "runtime/operands/rotary_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int kMostColumns = 65536;
constexpr float kTwoPi = 6.283185307179586F;

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

void check_positive(const char* name, float value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse(fmt::format("rotary.{} is {}; must be positive and finite", name, value));
}

bool needs_context(RotaryScaling scaling) {
  return scaling == RotaryScaling::kLlama3 || scaling == RotaryScaling::kYarn;
}

// Returns the frequency that llama3 scaling gives. Keeps waves that fit more than high_freq_factor
// times into the original context. Stretches waves that fit less than low_freq_factor times, and
// blends between.
float llama3_frequency(const Rotary& rotary, float plain) {
  const auto context = static_cast<float>(rotary.original_max_position);
  const float wave = kTwoPi / plain;
  if (wave < context / rotary.high_freq_factor) return plain;
  if (wave > context / rotary.low_freq_factor) return plain / rotary.factor;
  const float part = (context / wave - rotary.low_freq_factor) /
                     (rotary.high_freq_factor - rotary.low_freq_factor);
  return (1 - part) * plain / rotary.factor + part * plain;
}

// Returns the pair of columns whose wave turns `turns` times in the original context.
double yarn_pair(const Rotary& rotary, double turns) {
  const double context = rotary.original_max_position;
  return rotary.dim * std::log(context / (turns * 2 * 3.14159265358979323846)) /
         (2 * std::log(static_cast<double>(rotary.base)));
}

float yarn_frequency(const Rotary& rotary, int pair, float plain) {
  const double low = std::max(std::floor(yarn_pair(rotary, rotary.beta_fast)), 0.0);
  double high = std::min(std::ceil(yarn_pair(rotary, rotary.beta_slow)), rotary.dim - 1.0);
  if (low == high) high += 0.001;
  const auto ramp =
      static_cast<float>(std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0));
  return plain / rotary.factor * ramp + plain * (1 - ramp);
}

float yarn_mscale(float factor, float scale) {
  return factor <= 1 ? 1.0F : 0.1F * scale * std::log(factor) + 1.0F;
}

}  // namespace

void check_rotary(const Rotary& rotary) {
  if (rotary.dim < 2 || rotary.dim > kMostColumns || rotary.dim % 2 != 0)
    refuse(fmt::format("rotary.rotary_dim is {}; must be an even number from 2 to {}", rotary.dim,
                       kMostColumns));
  check_positive("base", rotary.base);
  check_positive("factor", rotary.factor);
  if (rotary.factor < 1)
    refuse(fmt::format("rotary.factor is {}; must be at least 1", rotary.factor));
  if (!needs_context(rotary.scaling)) return;
  if (rotary.original_max_position < 1)
    refuse(
        fmt::format("rotary.original_max_position is {}; must be at least 1 with llama3 and "
                    "yarn, the context before scaling",
                    rotary.original_max_position));
  if (rotary.scaling == RotaryScaling::kLlama3) {
    check_positive("low_freq_factor", rotary.low_freq_factor);
    if (!(rotary.high_freq_factor > rotary.low_freq_factor))
      refuse(
          fmt::format("rotary.high_freq_factor is {}; must be above "
                      "low_freq_factor, {}",
                      rotary.high_freq_factor, rotary.low_freq_factor));
    return;
  }
  check_positive("beta_slow", rotary.beta_slow);
  if (!(rotary.beta_fast >= rotary.beta_slow))
    refuse(fmt::format("rotary.beta_fast is {}; must be at least beta_slow, {}", rotary.beta_fast,
                       rotary.beta_slow));
  if (rotary.base == 1) refuse("rotary.base is 1; with yarn it must not be 1");
}

std::vector<float> rotary_frequencies(const Rotary& rotary) {
  if (!rotary.frequencies.empty()) return rotary.frequencies;
  std::vector<float> frequencies;
  for (int pair = 0; pair < rotary.dim / 2; ++pair) {
    const float exponent = static_cast<float>(2 * pair) / static_cast<float>(rotary.dim);
    const float plain = 1.0F / std::pow(rotary.base, exponent);
    switch (rotary.scaling) {
      case RotaryScaling::kPlain:
        frequencies.push_back(plain);
        break;
      case RotaryScaling::kLinear:
        frequencies.push_back(plain / rotary.factor);
        break;
      case RotaryScaling::kLlama3:
        frequencies.push_back(llama3_frequency(rotary, plain));
        break;
      case RotaryScaling::kYarn:
        frequencies.push_back(yarn_frequency(rotary, pair, plain));
        break;
    }
  }
  return frequencies;
}

float rotary_magnitude(const Rotary& rotary) {
  if (rotary.scaling != RotaryScaling::kYarn) return 1;
  if (rotary.attention_factor > 0) return rotary.attention_factor;
  if (rotary.mscale != 0 && rotary.mscale_all_dim != 0)
    return yarn_mscale(rotary.factor, rotary.mscale) /
           yarn_mscale(rotary.factor, rotary.mscale_all_dim);
  return yarn_mscale(rotary.factor, 1);
}

void rotary_table(const Rotary& rotary, int64_t first_position, int64_t num_positions, float* cos,
                  float* sin) {
  const std::vector<float> frequencies = rotary_frequencies(rotary);
  const double magnitude = static_cast<double>(rotary_magnitude(rotary));
  for (int64_t i = 0; i < num_positions; ++i)
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(first_position + i) * frequency;
      *cos++ = static_cast<float>(std::cos(static_cast<double>(angle)) * magnitude);
      *sin++ = static_cast<float>(std::sin(static_cast<double>(angle)) * magnitude);
    }
}

}  // namespace attune
