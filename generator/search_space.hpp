// SPDX-License-Identifier: Apache-2.0
// SearchSpace: the knobs of a template, their legal values for one (KernelSpec, Arch), and the
// rules between them. Each family defines its space, in a folder of generator/families. The tuner
// enumerates it; `check` and the C API validate configs against it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/config.hpp"

namespace attune {

struct Knob {
  std::string name;             // "block_m"; rendered as kBlockM
  std::vector<int64_t> values;  // legal values, in the order they are tried
  std::string meaning;          // one line for `attune explain` and errors
  // Configs of older versions lack it, which means the first value.
  bool is_new = false;
};

// A knob of older versions that had one value in every config. A stored config may have it at that
// value. New configs lack it, and kernels are rendered without it.
struct RetiredKnob {
  std::string_view name;
  int64_t value = 0;
};

// `broken` returns nullopt if the config obeys the rule, else a sentence with the reason. `reads`
// names the knobs that the rule needs, so that enumerate() can apply it before all knobs are set.
// Empty: all knobs.
struct Constraint {
  std::string name;
  std::vector<std::string> reads;
  std::function<std::optional<std::string>(const Config&)> broken;
};

class SearchSpace {
 public:
  SearchSpace() = default;
  SearchSpace(std::vector<Knob> knobs, std::vector<Constraint> constraints,
              std::vector<RetiredKnob> retired = {});

  const std::vector<Knob>& knobs() const { return knobs_; }
  // Returns the config with the first value of each knob, legal or not.
  Config first_values() const;
  // Returns nullopt if the config is legal. Otherwise returns a sentence with the knob, its value
  // and the legal values, or the constraint's sentence.
  std::optional<std::string> broken(const Config& config) const;
  // Returns the config without the space's retired knobs.
  Config without_retired(const Config& config) const;
  // Returns all legal configs in knob order (first knob slowest). Sets one knob after the other,
  // and drops configs as soon as they break a rule. `visited`, if given, counts the configs tried,
  // including those with only some knobs set.
  std::vector<Config> enumerate(int64_t* visited = nullptr) const;
  // Returns the legal configs that differ from `config` in one knob, by one step in the knob's list
  // of values.
  std::vector<Config> neighbours(const Config& config) const;
  const std::vector<Constraint>& constraints() const { return constraints_; }

 private:
  struct Walk;
  // Appends the legal configs whose first knobs are those of `walk`.
  void extend(Walk* walk) const;
  // Returns the number of knobs, counted from the first, that must be set before the rule can be
  // applied.
  size_t knobs_needed(const Constraint& constraint) const;

  std::vector<Knob> knobs_;
  std::vector<Constraint> constraints_;
  std::vector<RetiredKnob> retired_;
};

}  // namespace attune
