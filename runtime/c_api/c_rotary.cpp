// SPDX-License-Identifier: Apache-2.0
// The C functions on tables of rotary angles.
#include <fmt/format.h>

#include "runtime/c_api/c_support.hpp"
#include "runtime/operands/rotary_table.hpp"

namespace attune::c_api {
namespace {

constexpr size_t kRotarySize = offsetof(attune_rotary, frequencies) + sizeof(void*);

constexpr attune_rotary kDefaultRotary{.size = sizeof(attune_rotary),
                                       .rotary_dim = 0,
                                       .scaling = ATTUNE_ROTARY_PLAIN,
                                       .base = 10000,
                                       .factor = 1,
                                       .low_freq_factor = 1,
                                       .high_freq_factor = 4,
                                       .beta_fast = 32,
                                       .beta_slow = 1,
                                       .mscale = 0,
                                       .mscale_all_dim = 0,
                                       .attention_factor = 0,
                                       .original_max_position = 0,
                                       .frequencies = nullptr};

Rotary rotary_of(const attune_rotary* given) {
  const attune_rotary c =
      read_struct(given, "rotary", kDefaultRotary, kRotarySize, "attune_rotary_init");
  if (c.scaling < ATTUNE_ROTARY_PLAIN || c.scaling > ATTUNE_ROTARY_YARN)
    refuse(
        fmt::format("rotary.scaling is {}; must be ATTUNE_ROTARY_PLAIN, _LINEAR, _LLAMA3 "
                    "or _YARN",
                    c.scaling));
  Rotary rotary{.dim = c.rotary_dim,
                .scaling = static_cast<RotaryScaling>(c.scaling),
                .base = c.base,
                .factor = c.factor,
                .low_freq_factor = c.low_freq_factor,
                .high_freq_factor = c.high_freq_factor,
                .beta_fast = c.beta_fast,
                .beta_slow = c.beta_slow,
                .mscale = c.mscale,
                .mscale_all_dim = c.mscale_all_dim,
                .attention_factor = c.attention_factor,
                .original_max_position = c.original_max_position};
  check_rotary(rotary);
  if (c.frequencies != nullptr)
    rotary.frequencies.assign(c.frequencies, c.frequencies + c.rotary_dim / 2);
  return rotary;
}

}  // namespace
}  // namespace attune::c_api

using namespace attune;
using namespace attune::c_api;

extern "C" {

void attune_rotary_init_sized(attune_rotary* rotary, size_t size) {
  if (rotary) write_struct(kDefaultRotary, rotary, size);
}

attune_status attune_rotary_table(const attune_rotary* rotary, int64_t first_position,
                                  int64_t num_positions, float* cos, float* sin) {
  return guarded([&] {
    const Rotary asked = rotary_of(rotary);
    if (num_positions < 0 || first_position < 0)
      refuse(fmt::format("first_position is {} and num_positions is {}; must be at least 0",
                         first_position, num_positions));
    if (first_position > kMaxLength - std::min<int64_t>(num_positions, kMaxLength))
      refuse(
          fmt::format("first_position is {} and num_positions is {}; positions must be at most {}",
                      first_position, num_positions, kMaxLength));
    if (num_positions == 0) return;
    rotary_table(asked, first_position, num_positions, &not_null(cos, "cos"),
                 &not_null(sin, "sin"));
  });
}

}  // extern "C"
