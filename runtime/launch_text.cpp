// SPDX-License-Identifier: Apache-2.0
// A launch in words; see launch_text.hpp.
#include "runtime/launch_text.hpp"

#include <fmt/format.h>

namespace attune {
namespace {

std::string launch_text(const KernelLaunch& launch) {
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
  for (const KernelLaunch& kernel : launch.kernels)
    if (kernel.entry != kEntryName)
      text += fmt::format("{}: {}; then ", kernel.entry, launch_text(kernel));
  return text + launch_text(launch.main());
}

}  // namespace attune
