// SPDX-License-Identifier: Apache-2.0
// Default configs of families with a reliable cost model: the cheapest config of the space, or of
// some of its knobs.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/system/error.hpp"
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

// Returns the cheapest by `cost` among the `legal` values of the named knobs; other knobs stay as
// they are.
template <class Legal, class Cost>
std::optional<Config> cheapest(const std::vector<Knob>& knobs, const Config& config,
                               const std::vector<std::string_view>& names, const Legal& legal,
                               const Cost& cost) {
  std::vector<Config> all{config};
  for (const Knob& knob : knobs) {
    if (std::find(names.begin(), names.end(), knob.name) == names.end()) continue;
    std::vector<Config> more;
    for (const Config& one : all)
      for (const int64_t value : knob.values) {
        more.push_back(one);
        more.back().set(knob.name, value);
      }
    all = std::move(more);
  }
  std::erase_if(all, [&](const Config& one) { return !legal(one); });
  if (all.empty()) return std::nullopt;
  return *std::min_element(all.begin(), all.end(),
                           [&](const Config& a, const Config& b) { return cost(a) < cost(b); });
}

}  // namespace attune
