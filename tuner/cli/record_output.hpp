// SPDX-License-Identifier: Apache-2.0
// Store records as the program prints them: JSON in SI units, and the small texts of tables. Used
// by tune, bench, explain, db.
#pragma once

#include <string>

#include "cache/records.hpp"
#include "runtime/device.hpp"
#include "tuner/cli/output.hpp"

namespace attune::cli {

Json timing_json(const Timing& timing);
Json winner_json(const WinnerRecord& winner);
Json device_json(const Device& device);
Json power_limit_json(const Conditions& conditions);  // watts; null where it is not known

// "2.36 ms ±1.2 %": the median and how far its 95 % interval reaches from it; behind it "noisy" where that is so; "-" where no time
// is known.
std::string time_text(const Timing& timing);
// How many times faster `timing` is than `other`: "1.25x", or "-" when one is not known.
std::string gain_text(const Timing& timing, const Timing& other);

}  // namespace attune::cli
