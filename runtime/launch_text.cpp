// SPDX-License-Identifier: Apache-2.0
// A launch in words; see launch_text.hpp.
#include "runtime/launch_text.hpp"

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
  for (const LaunchStep& step : launch.steps) {
    if (!text.empty()) text += "; then ";
    if (step.entry != kEntryName) text += step.entry + ": ";
    text += launch_text(step);
  }
  return text;
}

}  // namespace attune
