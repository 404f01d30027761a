// SPDX-License-Identifier: Apache-2.0
// Enumerates a search space; see search_space.hpp.
#include "generator/search_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attune {

SearchSpace::SearchSpace(std::vector<Knob> knobs, std::vector<Constraint> constraints,
                         std::vector<RetiredKnob> retired)
    : knobs_(std::move(knobs)),
      constraints_(std::move(constraints)),
      retired_(std::move(retired)) {}

Config SearchSpace::without_retired(const Config& config) const {
  std::vector<std::pair<std::string, int64_t>> knobs = config.knobs();
  for (const RetiredKnob& retired : retired_)
    std::erase_if(knobs, [&](const auto& knob) { return knob.first == retired.name; });
  return Config(std::move(knobs));
}

Config SearchSpace::first_values() const {
  Config config;
  for (const Knob& knob : knobs_) config.set(knob.name, knob.values.front());
  return config;
}

std::optional<std::string> SearchSpace::broken(const Config& config) const {
  for (const auto& [name, value] : config.knobs()) {
    if (const auto old = std::find_if(
            retired_.begin(), retired_.end(),
            [&, &knob_name = name](const RetiredKnob& k) { return k.name == knob_name; });
        old != retired_.end()) {
      if (value == old->value) continue;
      return fmt::format("{} is {}; must be {}", name, value, old->value);
    }
    const bool known =
        std::any_of(knobs_.begin(), knobs_.end(),
                    [&, &knob_name = name](const Knob& k) { return k.name == knob_name; });
    if (!known) {
      std::vector<std::string> names;
      for (const Knob& knob : knobs_) names.push_back(knob.name);
      return fmt::format("unknown knob \"{}\"; must be {}", name, fmt::join(names, ", "));
    }
  }
  for (const Knob& knob : knobs_) {
    if (knob.is_new && !config.has(knob.name)) continue;
    if (!config.has(knob.name))
      return fmt::format("knob \"{}\" is missing; must be {}", knob.name,
                         fmt::join(knob.values, ", "));
    const int64_t value = config.at(knob.name);
    if (std::find(knob.values.begin(), knob.values.end(), value) == knob.values.end())
      return fmt::format("{} is {}; must be {}", knob.name, value, fmt::join(knob.values, ", "));
  }
  for (const Constraint& constraint : constraints_)
    if (auto sentence = constraint.broken(config)) return sentence;
  return std::nullopt;
}

size_t SearchSpace::knobs_needed(const Constraint& constraint) const {
  if (constraint.reads.empty()) return knobs_.size();
  size_t needed = 0;
  for (const std::string& name : constraint.reads) {
    const auto knob = std::find_if(knobs_.begin(), knobs_.end(),
                                   [&](const Knob& one) { return one.name == name; });
    // A rule that several families share may name a knob that this family lacks.
    if (knob != knobs_.end())
      needed = std::max(needed, static_cast<size_t>(knob - knobs_.begin()) + 1);
  }
  return needed;
}

struct SearchSpace::Walk {
  std::vector<std::vector<const Constraint*>> rules;  // [knobs set]: rules that can be applied then
  Config config;                                      // the first knobs
  std::vector<Config> found;
  int64_t visited = 0;
};

void SearchSpace::extend(Walk* walk) const {
  ++walk->visited;
  const size_t set = walk->config.knobs().size();
  for (const Constraint* rule : walk->rules[set])
    if (rule->broken(walk->config)) return;
  if (set == knobs_.size()) {
    walk->found.push_back(walk->config);
    return;
  }
  const Config before = walk->config;
  for (const int64_t value : knobs_[set].values) {
    walk->config.set(knobs_[set].name, value);
    extend(walk);
    walk->config = before;
  }
}

std::vector<Config> SearchSpace::enumerate(int64_t* visited) const {
  Walk walk;
  walk.rules.resize(knobs_.size() + 1);
  for (const Constraint& constraint : constraints_)
    walk.rules[knobs_needed(constraint)].push_back(&constraint);
  extend(&walk);
  if (visited != nullptr) *visited = walk.visited;
  return std::move(walk.found);
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
