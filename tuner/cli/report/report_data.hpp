// SPDX-License-Identifier: Apache-2.0
// The data of `attune report` as one JSON object: read from stores by report_data.cpp and
// report_diff.cpp, drawn by report/page.js. Keys are short, because a page may hold 100,000 trials.
#pragma once

#include <string>
#include <vector>

#include "cache/store.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/measure/peer_times.hpp"

namespace attune::cli {

// Returns winners, trials, failures and knobs of a store. Winners get those times of peers that
// were taken on the same device, or on a device that is not known.
Json report_data(const Store& store, const PeerTimes& peers = {});

// Compares two stores, "before" and "after": all problems for which both have a winner on the same
// device.
Json report_diff(const Store& before, const Store& after);

// The effect of each value of a knob, and the share of the spread of log time that the knob
// explains alone, in [0, 1]. Times are relative to the mean of each problem's trials.
struct KnobValue {
  int64_t value = 0;
  int trials = 0;
  double slower = 0;  // geometric mean of time over the problem's geometric mean, minus 1
  double best = 0;    // least time over the problem's best
};
struct KnobEffect {
  std::string knob;
  double explained = 0;
  std::vector<KnobValue> values;  // in order
};
// One timed trial: its problem, config and time.
struct TimedConfig {
  size_t problem = 0;
  const Config* config = nullptr;
  double time_us = 0;
};
std::vector<KnobEffect> knob_effects(const std::vector<TimedConfig>& trials);  // largest first

// The page of `attune report`: one HTML text that needs no other file and no network.

// The files of report/, embedded by CMake (embed_report.cmake).
struct ReportAssets {
  const char *style, *script;
};
extern const ReportAssets kReportAssets;

// Returns the page. `data` may hold any text: it is in a block that is not a script, with "<"
// escaped. The page's policy (Content-Security-Policy) runs only the page's own script, by its
// hash.
std::string report_page(const Json& data);

}  // namespace attune::cli
