// SPDX-License-Identifier: Apache-2.0
// For families whose threads hold rows in registers: `lanes` threads share a row, eight columns
// each per step.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "generator/kernel_template.hpp"

namespace attune {

inline int64_t steps_of_lanes(int columns, int64_t lanes) {
  return (columns / 8 + lanes - 1) / lanes;
}

// Limits the knob "lanes": a thread's columns must fit its registers. Half of the lanes must not
// idle, unless `fewest_lanes` requires so many lanes.
inline Constraint lanes_hold_rows(int columns, int64_t most_steps, int64_t fewest_lanes) {
  return {"lanes", {"lanes"}, [=](const Config& config) -> std::optional<std::string> {
            const int64_t lanes = config.at("lanes"), steps = steps_of_lanes(columns, lanes);
            if (steps > most_steps)
              return fmt::format("lanes is {}; each holds {} times eight columns, at most {} fit",
                                 lanes, steps, most_steps);
            if (lanes > fewest_lanes && steps_of_lanes(columns, lanes / 2) == 1)
              return fmt::format("lanes is {}; half of them hold nothing", lanes);
            return std::nullopt;
          }};
}

}  // namespace attune
