// SPDX-License-Identifier: Apache-2.0
// What `attune explain` says beyond the plan: share of the roofline, occupancy, the runner-up of the
// winner's final, and for what was not tuned the nearest tuned key and what differs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"
#include "runtime/plan.hpp"
#include "tuner/cli/output.hpp"
#include "tuner/roofline.hpp"

namespace attune::cli {

// Blocks of the plan's main kernel that one multiprocessor holds at once.
struct Occupancy {
  int blocks = 0;
  int threads = 0;         // of all these blocks
  std::string limited_by;  // "registers", "shared memory" or "threads"
};
// Nothing on a CPU, and where the kernel's registers are not known.
std::optional<Occupancy> occupancy_of(const LaunchStep& step, const Arch& arch,
                                      const ImageInfo& info);

struct NearestKey {
  WinnerRecord winner;
  std::vector<std::string> differs;  // "head_dim is 64, asked is 128"
};
// Returns the winner of the problem's op with the fewest differences to the problem here, if there is one.
std::optional<NearestKey> nearest_key(const Problem& problem, const DeviceIdentity& device,
                                      const std::vector<WinnerRecord>& winners);

struct More {
  std::optional<Roofline> roofline;  // where an expected time is known
  double share = 0;                  // of it; 0: not known
  std::optional<Occupancy> occupancy;
  std::optional<TrialRecord> runner_up;
  std::optional<NearestKey> nearest;  // where the rung is below exact
};
// Reads `stores`, uppermost first; those that cannot be read were named among the plan's warnings.
More more_of(const Plan& plan, const std::vector<std::filesystem::path>& stores);

std::string more_text(const More& more, const Plan& plan);
Json more_json(const More& more, const Plan& plan);

}  // namespace attune::cli
