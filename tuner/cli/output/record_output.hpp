// SPDX-License-Identifier: Apache-2.0
// Store records as the program prints them: JSON in SI units, and short texts for tables. Used by
// tune, bench, explain, db.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cache/records.hpp"
#include "cache/store.hpp"
#include "runtime/engine/device.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/models/workload.hpp"
#include "tuner/search/tune_loop.hpp"

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

// The contents of a store as gauges in Prometheus' text format.

// `store` is the file's path, a label of each gauge.
std::string prometheus_text(const std::string& store, const StoreStats& stats,
                            const std::vector<WinnerRecord>& winners);

// A workload as the program shows it: the problems by kind of layer, with unsupported features.
// Used by tune --dry-run, explain MODEL, and by every command's --json.

// Returns "bf16 d128 32/8 heads, 1 x 2048 causal", for tables.
std::string short_text(const Problem& problem);

// Returns the whole set, one line a problem. `more`, if given, adds text after a problem.
std::string workload_text(const Workload& workload,
                          const std::function<std::string(const Problem&)>& more = {});

// Returns {"notes": [...], "layer_kinds": [{"kind", "layers", "problems", "not_supported",
// "refused"}]}.
Json workload_json(const Workload& workload);

// Final races repeated in fresh processes (`attune tune --verify N`, verify_winners in
// tune_loop.hpp).

Json repeats_json(const std::vector<WinnerCheck>& checks);
std::string repeats_text(const std::vector<WinnerCheck>& checks);

}  // namespace attune::cli
