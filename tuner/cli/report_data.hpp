// SPDX-License-Identifier: Apache-2.0
// What `attune report` shows, as one JSON object: read from stores by report_data.cpp and
// report_diff.cpp, drawn by report/page.js. Short keys: a page may hold 100,000 trials.
#pragma once

#include <string>
#include <vector>

#include "cache/store.hpp"
#include "tuner/cli/output.hpp"
#include "tuner/peer_times.hpp"

namespace attune::cli {

// Winners, trials, failures and knobs of a store; with the times of peers beside winners of the
// device that they were taken on.
Json report_data(const Store& store, const PeerTimes& peers = {});

// Two stores, "before" and "after": each problem that both have a winner for on one device.
Json report_diff(const Store& before, const Store& after);

// How much of the spread of log time each knob explains by itself, in [0, 1], over the trials of
// each problem beside their mean; and what each value did.
struct KnobValue {
  int64_t value = 0;
  int trials = 0;
  double slower = 0;  // geometric mean of time over the problem's geometric mean, less 1
  double best = 0;    // least time over the problem's best
};
struct KnobEffect {
  std::string knob;
  double explained = 0;
  std::vector<KnobValue> values;  // in order
};
// One timed trial: which problem it is of, its config and its time.
struct TimedConfig {
  size_t problem = 0;
  const Config* config = nullptr;
  double time_us = 0;
};
std::vector<KnobEffect> knob_effects(const std::vector<TimedConfig>& trials);  // largest first

}  // namespace attune::cli
