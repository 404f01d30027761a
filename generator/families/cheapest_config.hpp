// SPDX-License-Identifier: Apache-2.0
// The default of families whose predicted cost tells what is good: the cheapest config of their space.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "generator/core/error.hpp"
#include "generator/kernel_template.hpp"

namespace attune {

inline Config cheapest_config(const KernelTemplate& family, const KernelSpec& spec,
                              const Arch& arch, const Shape& shape, const DeviceFacts& device) {
  const std::vector<Config> configs = family.space(spec, arch).enumerate();
  if (configs.empty())
    throw Error(ErrorCode::kUnsupported, "template " + std::string(family.name()) +
                                             " has no config for " + to_problem_text(spec) +
                                             " on " + arch.name());
  const auto cost = [&](const Config& config) {
    return family.predicted_cost(spec, arch, config, shape, device);
  };
  return *std::min_element(configs.begin(), configs.end(),
                           [&](const Config& a, const Config& b) { return cost(a) < cost(b); });
}

}  // namespace attune
