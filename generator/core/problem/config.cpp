// SPDX-License-Identifier: Apache-2.0
// Reading and writing Configs; see config.hpp.
#include "generator/core/problem/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

auto find_knob(const std::vector<std::pair<std::string, int64_t>>& knobs, std::string_view name) {
  return std::find_if(knobs.begin(), knobs.end(),
                      [&](const auto& knob) { return knob.first == name; });
}

std::pair<std::string, int64_t> parse_pair(std::string_view pair) {
  const size_t equals = pair.find('=');
  int64_t value = 0;
  bool good = equals != std::string_view::npos && equals > 0;
  if (good) {
    const char* end = pair.data() + pair.size();
    const auto [stop, error] = std::from_chars(pair.data() + equals + 1, end, value);
    good = error == std::errc() && stop == end;
  }
  if (!good)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config part \"{}\" is not knob=integer", pair));
  return {std::string(pair.substr(0, equals)), value};
}

}  // namespace

int64_t Config::at(std::string_view knob) const {
  const auto found = find_knob(knobs_, knob);
  if (found == knobs_.end())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config \"{}\" has no knob \"{}\"", to_text(), knob));
  return found->second;
}

int64_t Config::get(std::string_view knob, int64_t otherwise) const {
  const auto found = find_knob(knobs_, knob);
  return found == knobs_.end() ? otherwise : found->second;
}

bool Config::has(std::string_view knob) const { return find_knob(knobs_, knob) != knobs_.end(); }

void Config::set(std::string_view knob, int64_t value) {
  for (auto& [name, old] : knobs_) {
    if (name != knob) continue;
    old = value;
    return;
  }
  knobs_.emplace_back(std::string(knob), value);
}

std::string Config::to_text() const {
  std::string text;
  for (const auto& [name, value] : knobs_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}

Config parse_config(std::string_view text) {
  Config config;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    auto [name, value] = parse_pair(text.substr(0, comma));
    if (config.has(name))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("knob \"{}\" is in the config twice", name));
    config.set(name, value);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return config;
}

}  // namespace attune
