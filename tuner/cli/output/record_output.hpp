// SPDX-License-Identifier: Apache-2.0
// Store records as the program prints them: JSON in SI units, and short texts for tables. Used by
// tune, bench, explain, db.
#pragma once

#include <string>

#include "cache/records.hpp"
#include "runtime/engine/device.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {

Json timing_json(const Timing& timing);
Json winner_json(const WinnerRecord& winner);
Json device_json(const Device& device);
Json power_limit_json(const Conditions& conditions);  // watts; null if not known

// Returns "2.36 ms ±1.2 %": the median, and its distance to the farther end of the 95 % interval.
// Adds "noisy" if the timing is noisy. Returns "-" if no time is known.
std::string time_text(const Timing& timing);
// Returns how many times faster `timing` is than `other`: "1.25x". Returns "-" if either time is
// not known.
std::string gain_text(const Timing& timing, const Timing& other);

}  // namespace attune::cli
