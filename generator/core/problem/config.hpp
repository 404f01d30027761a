// SPDX-License-Identifier: Apache-2.0
// Config: the knobs of one compiled kernel, as an ordered list of knob=value. Text form:
// "block_m=128,block_n=64,kv_slots=2".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

class Config {
 public:
  Config() = default;
  explicit Config(std::vector<std::pair<std::string, int64_t>> knobs) : knobs_(std::move(knobs)) {}

  // Throws kInvalidArgument when the knob is missing.
  int64_t at(std::string_view knob) const;
  int64_t get(std::string_view knob, int64_t otherwise) const;
  bool has(std::string_view knob) const;
  void set(std::string_view knob, int64_t value);  // keeps the knob's place, or appends
  const std::vector<std::pair<std::string, int64_t>>& knobs() const { return knobs_; }

  std::string to_text() const;
  bool operator==(const Config& other) const { return knobs_ == other.knobs_; }
  bool operator<(const Config& other) const { return knobs_ < other.knobs_; }

 private:
  std::vector<std::pair<std::string, int64_t>> knobs_;
};

// Returns the value of a knob that the config has, as an int.
inline int as_int(const Config& config, std::string_view knob) {
  return static_cast<int>(config.at(knob));
}

// Throws kInvalidArgument for anything but knob=integer[,knob=integer ...].
Config parse_config(std::string_view text);

}  // namespace attune
