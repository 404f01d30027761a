// SPDX-License-Identifier: Apache-2.0
// Room for a score stage; see prefill_parts.hpp.
#include "generator/families/prefill/prefill_parts.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "generator/score/analysis/dependence.hpp"

namespace attune {
namespace {

// Returns the values of a knob up to `most`, largest first.
std::vector<int64_t> values_up_to(const SearchSpace& legal, const char* knob, int64_t most) {
  std::vector<int64_t> values;
  for (const Knob& one : legal.knobs())
    if (one.name == knob)
      for (const int64_t value : one.values)
        if (value <= most) values.push_back(value);
  std::sort(values.rbegin(), values.rend());
  return values;
}

// Returns the config, or one with other values of the knobs that follow from a tile.
std::optional<Config> legal_with(const SearchSpace& legal, Config config) {
  if (!legal.broken(config)) return config;
  constexpr int64_t kAny = 1 << 20;
  for (const char* knob : {"blocks_per_sm", "q_place", "hold_offsets"}) {
    const std::vector<int64_t> values = values_up_to(legal, knob, kAny);
    if (values.empty()) continue;
    for (const int64_t blocks_per_sm : values_up_to(legal, "blocks_per_sm", kAny))
      for (const int64_t value : values) {
        Config changed = config;
        changed.set("blocks_per_sm", blocks_per_sm);
        changed.set(knob, value);
        if (!legal.broken(changed)) return changed;
      }
  }
  return std::nullopt;
}

// Returns the number of loads per element.
int elements_read(const score::Program& program) {
  const std::vector<score::Dependences> dependences = score::dependences_of(program);
  int count = 0;
  for (size_t i = 0; i < program.nodes().size(); ++i)
    if (program.nodes()[i].operation == score::Operation::kLoad &&
        score::level_of(dependences[i]) == score::Level::kElement)
      ++count;
  return count;
}

int elements_read_to_hide(const SpecFields& spec) {
  if (!has_mask_program(spec) || hides_by_map(spec)) return 0;
  return elements_read(mask_program(spec).program);
}

int elements_read_to_score(const SpecFields& spec) {
  return has_score_stage(spec) ? elements_read(score_stage_program(spec).program) : 0;
}

}  // namespace

bool reads_elements_to_hide(const SpecFields& spec) { return elements_read_to_hide(spec) > 0; }

bool reads_elements_to_score(const SpecFields& spec) { return elements_read_to_score(spec) > 0; }

bool reads_several_elements(const SpecFields& spec) {
  return elements_read_to_score(spec) + elements_read_to_hide(spec) > 1;
}

Config with_room_for_scores(const SearchSpace& legal, const Config& config, int64_t block_n,
                            int64_t block_m) {
  if (config.at("block_m") > block_m) {
    Config lower = config;
    lower.set("block_m", block_m);
    const std::vector<int64_t> narrowest = values_up_to(legal, "block_n", block_n);
    if (!narrowest.empty()) lower.set("block_n", narrowest.back());
    if (auto found = legal_with(legal, lower)) return *found;
  }
  if (config.at("block_n") <= block_n) return config;
  for (const int64_t narrower : values_up_to(legal, "block_n", block_n)) {
    Config candidate = config;
    candidate.set("block_n", narrower);
    if (auto found = legal_with(legal, candidate)) return *found;
  }
  return config;
}

}  // namespace attune
