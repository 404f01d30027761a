// SPDX-License-Identifier: Apache-2.0
// See wide.hpp.
#include "generator/families/prefill/sm90/wide.hpp"

#include <algorithm>

#include "generator/families/prefill/v_slices.hpp"
#include "templates/shared/layouts/prefill_sm90_layout.h"

namespace attune {
namespace {

constexpr int64_t kUsualParts = 4;  // more parts wait more often

int panels_of(int head_dim) { return (head_dim + kPanelColumns - 1) / kPanelColumns; }

// Returns 1, and the counts that divide the panels of K.
std::vector<int64_t> part_counts(const KernelSpec& spec) {
  std::vector<int64_t> counts{1};
  for (int count = 2; count <= panels_of(spec.head_dim_qk); ++count)
    if (panels_of(spec.head_dim_qk) % count == 0) counts.push_back(count);
  return counts;
}

int64_t usual_parts(const KernelSpec& spec) {
  const std::vector<int64_t> counts = part_counts(spec);
  const auto above = std::upper_bound(counts.begin(), counts.end(), kUsualParts);
  return *(above - 1) > 1 ? *(above - 1) : counts.back();
}

}  // namespace

void sm90_widen(const KernelSpec& spec, std::vector<Knob>* knobs) {
  for (Knob& knob : *knobs) {
    if (knob.name == "stages") knob.values = {2, 1, 3};
    if (knob.name == "o_staging" && has_wide_v(spec)) knob.values = {0};
  }
  // They come first, since most rules read them.
  std::vector<Knob> own;
  add_v_slices(spec, {2, 1, 3, 4}, &own);
  own.push_back({"k_parts", part_counts(spec), "parts in which a tile of K is loaded"});
  knobs->insert(knobs->begin(), own.begin(), own.end());
}

Constraint sm90_parts_rule() {
  return {"parts",
          {"k_parts", "kv_ring", "stages", "block_m"},
          [](const Config& c) -> std::optional<std::string> {
            if (c.at("k_parts") == 1 ||
                (c.at("kv_ring") == 0 && c.at("stages") == 1 && c.at("block_m") >= 128))
              return std::nullopt;
            return "k_parts above 1 needs one slot of K (stages 1, kv_ring 0) and two warpgroups "
                   "(block_m 128); with one warpgroup ptxas 13.0 serialises wgmma";
          }};
}

std::vector<Config> sm90_wide_configs(const KernelSpec& spec, const std::vector<Knob>& knobs) {
  Config first;
  std::vector<int64_t> slices{1}, packed{1}, staging;
  for (const Knob& knob : knobs) {
    first.set(knob.name, knob.values.front());
    if (knob.name == "v_slices") slices = {1, 2, 3};
    if (knob.name == "pack_heads") packed = knob.values;
    if (knob.name == "o_staging") staging = knob.values;
  }
  first.set("ping_pong", 0);
  first.set("row_max", 1);
  std::vector<Config> configs;
  const auto add = [&](int block_m, int block_n, int stages) {
    for (const int64_t slice_count : slices)
      for (const int64_t heads : packed)
        for (const int64_t o_staging : staging) {
          Config c = first;
          if (c.has("v_slices")) c.set("v_slices", slice_count);
          c.set("k_parts", stages == 1 && block_m > 64 ? usual_parts(spec) : 1);
          c.set("block_m", block_m);
          c.set("block_n", block_n);
          c.set("stages", stages);
          c.set("o_staging", o_staging);
          c.set("pack_heads", heads);
          configs.push_back(std::move(c));
        }
  };
  for (const int block_m : {128, 64})
    for (const int block_n : {80, 64, 48, 32, 16})
      for (const int stages : {2, 1}) add(block_m, block_n, stages);
  return configs;
}

int sm90_part_columns(const KernelSpec& spec, const Config& config) {
  const auto parts = static_cast<int>(config.get("k_parts", 1));
  return parts == 1 ? spec.head_dim_qk : panels_of(spec.head_dim_qk) / parts * kPanelColumns;
}

}  // namespace attune
