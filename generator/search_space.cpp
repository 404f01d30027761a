// SPDX-License-Identifier: Apache-2.0
// Walking a search space; see search_space.hpp.
#include "generator/search_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attune {

SearchSpace::SearchSpace(std::vector<Knob> knobs, std::vector<Constraint> constraints)
    : knobs_(std::move(knobs)), constraints_(std::move(constraints)) {}

std::optional<std::string> SearchSpace::broken(const Config& config) const {
  for (const auto& [name, value] : config.knobs()) {
    const bool known =
        std::any_of(knobs_.begin(), knobs_.end(),
                    [&, &knob_name = name](const Knob& k) { return k.name == knob_name; });
    if (!known) {
      std::vector<std::string> names;
      for (const Knob& knob : knobs_) names.push_back(knob.name);
      return fmt::format("unknown knob \"{}\"; accepted are {}", name, fmt::join(names, ", "));
    }
  }
  for (const Knob& knob : knobs_) {
    if (!config.has(knob.name))
      return fmt::format("knob \"{}\" is missing; accepted are {}", knob.name,
                         fmt::join(knob.values, ", "));
    const int64_t value = config.at(knob.name);
    if (std::find(knob.values.begin(), knob.values.end(), value) == knob.values.end())
      return fmt::format("{} is {}; accepted are {}", knob.name, value,
                         fmt::join(knob.values, ", "));
  }
  for (const Constraint& constraint : constraints_)
    if (auto sentence = constraint.broken(config)) return sentence;
  return std::nullopt;
}

std::vector<Config> SearchSpace::enumerate() const {
  std::vector<Config> found;
  std::vector<size_t> index(knobs_.size(), 0);
  const bool empty = std::any_of(knobs_.begin(), knobs_.end(),
                                 [](const Knob& knob) { return knob.values.empty(); });
  for (bool more = !empty; more;) {
    Config config;
    for (size_t i = 0; i < knobs_.size(); ++i)
      config.set(knobs_[i].name, knobs_[i].values[index[i]]);
    const bool legal =
        std::none_of(constraints_.begin(), constraints_.end(),
                     [&](const Constraint& c) { return c.broken(config).has_value(); });
    if (legal) found.push_back(std::move(config));
    more = false;
    for (size_t i = knobs_.size(); i-- > 0 && !more;) {
      more = ++index[i] < knobs_[i].values.size();
      if (!more) index[i] = 0;
    }
  }
  return found;
}

std::vector<Config> SearchSpace::neighbours(const Config& config) const {
  std::vector<Config> found;
  for (const Knob& knob : knobs_) {
    const auto at = std::find(knob.values.begin(), knob.values.end(), config.at(knob.name));
    if (at == knob.values.end()) continue;
    const auto try_value = [&](int64_t value) {
      Config changed = config;
      changed.set(knob.name, value);
      if (!broken(changed)) found.push_back(std::move(changed));
    };
    if (at != knob.values.begin()) try_value(*(at - 1));
    if (at + 1 != knob.values.end()) try_value(*(at + 1));
  }
  return found;
}

}  // namespace attune
