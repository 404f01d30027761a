// SPDX-License-Identifier: Apache-2.0
// The default of families whose predicted cost tells what is good: the cheapest config of their space.
#pragma once

#include <algorithm>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

inline Config cheapest_config(const KernelTemplate& family, const KernelSpec& spec,
                              const Arch& arch, const Shape& shape, const DeviceFacts& device) {
  const std::vector<Config> configs = family.space(spec, arch).enumerate();
  const auto cost = [&](const Config& config) {
    return family.predicted_cost(spec, arch, config, shape, device);
  };
  return *std::min_element(configs.begin(), configs.end(),
                           [&](const Config& a, const Config& b) { return cost(a) < cost(b); });
}

}  // namespace attune
