// SPDX-License-Identifier: Apache-2.0
// `attune tune --verify N`: runs the final of each tuned shape again in fresh processes, and says how often another candidate
// would have won (flips) and how much slower than the best of that run the stored winner was (regret). Stores nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tuner/backend.hpp"
#include "tuner/cli/output.hpp"
#include "tuner/tune_loop.hpp"

namespace attune::cli {

struct RepeatReport {
  Problem problem;
  int repeats = 0;
  int flips = 0;           // another one was faster by more than its interval and 1.5 %
  double mean_regret = 0;  // winner's time over the best's, less 1
  double max_regret = 0;
};

// Shapes without a winner are left out. `backend` is restarted before each repeat.
std::vector<RepeatReport> repeat_finals(const TuneTarget& target, MeasureBackend& backend, const TuneReport& tuned, int repeats,
                                        uint64_t seed);

Json repeats_json(const std::vector<RepeatReport>& reports);
std::string repeats_text(const std::vector<RepeatReport>& reports);

}  // namespace attune::cli
