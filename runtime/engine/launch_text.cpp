// SPDX-License-Identifier: Apache-2.0
// Describing a launch; see launch_text.hpp.
#include "runtime/engine/launch_text.hpp"

#include <fmt/format.h>

namespace attune {
namespace {

std::string launch_text(const LaunchStep& launch) {
  std::string text = fmt::format("{} threads, grid {}x{}x{}", launch.threads, launch.grid_x,
                                 launch.grid_y, launch.grid_z);
  if (launch.cluster > 1) text += fmt::format(", cluster {}", launch.cluster);
  if (launch.shared_bytes > 0)
    text += fmt::format(", {} bytes of dynamic shared memory", launch.shared_bytes);
  return text;
}

}  // namespace

std::string launch_text(const LaunchPlan& launch) {
  std::string text;
  for (size_t i = 0; i < launch.steps.size(); ++i) {
    const LaunchStep& step = launch.steps[i];
    if (!text.empty()) text += "; then ";
    if (i == launch.rounds.begin && i < launch.rounds.end)
      text += fmt::format("for {} heads of k at a time, of {}: ", launch.round_sizes.of_round,
                          launch.round_sizes.heads);
    if (step.entry != kEntryName) text += step.entry + ": ";
    text += launch_text(step);
  }
  return text;
}

}  // namespace attune
