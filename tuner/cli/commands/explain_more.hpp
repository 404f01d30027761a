// SPDX-License-Identifier: Apache-2.0
// The output of `attune explain` beyond the plan: share of the roofline, occupancy, and the
// runner-up of the winner's final race. For an untuned problem, also the nearest tuned key and how
// it differs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/records.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/plan.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/workload_options.hpp"
#include "tuner/measure/roofline.hpp"

namespace attune::cli {

// The number of blocks of the plan's main kernel that fit on one multiprocessor at once.
struct Occupancy {
  int blocks = 0;
  int threads = 0;         // in all these blocks
  std::string limited_by;  // "registers", "shared memory" or "threads"
};
// Returns nullopt on a CPU, and if the kernel's registers are not known.
std::optional<Occupancy> occupancy_of(const LaunchStep& step, const Arch& arch,
                                      const ImageInfo& info);

struct NearestKey {
  WinnerRecord winner;
  std::vector<std::string> differs;  // "head_dim is 64, here 128"
};
// Returns the stored winner of the problem's op that differs least from `problem` on `device`;
// nullopt if the op has no winner.
std::optional<NearestKey> nearest_key(const Problem& problem, const DeviceIdentity& device,
                                      const std::vector<WinnerRecord>& winners);

struct More {
  std::optional<Roofline> roofline;  // if an expected time is known
  double share = 0;                  // share of the roofline; 0: not known
  std::optional<Occupancy> occupancy;
  std::optional<TrialRecord> runner_up;
  std::optional<NearestKey> nearest;  // if the rung is below exact
};
// Reads `stores`, in order of priority. Skips stores that cannot be read: the plan's warnings name
// them.
More more_of(const Plan& plan, const std::vector<std::filesystem::path>& stores);

std::string more_text(const More& more, const Plan& plan);
Json more_json(const More& more, const Plan& plan);

// `attune explain MODEL`: lists each problem of a model, by kind of layer, with its rung.

// Prints the list, as JSON if `json` is set. Returns the exit code.
int explain_model(const WorkloadOptions& options, const Engine& engine, bool json);

}  // namespace attune::cli
