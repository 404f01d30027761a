// SPDX-License-Identifier: Apache-2.0
// See rules.hpp. First the arch and head dims, then the knobs, then the rules between them: against
// useless combinations, then about registers and shared memory. The numbers behind the rules are in
// templates/cuda/prefill_sm90/LOG.md.
#include "generator/families/prefill/sm90/rules.hpp"

#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <tuple>

#include "generator/families/limits.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/prefill/sm90/launch.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/print/source_text.hpp"
#include "templates/shared/layouts/prefill_sm90_splits.h"
#include "templates/shared/layouts/score_stage_layout.h"

namespace attune {

std::optional<std::string> not_sm90a(const Arch& arch) {
  if (arch.target == Target::kCuda && arch.compute_capability == 90 && arch.suffix == "a")
    return std::nullopt;
  return fmt::format("{} is not sm_90a; this template needs wgmma", arch.name());
}

std::optional<std::string> sm90_refusal(const KernelSpec& spec, const Arch& arch) {
  if (auto reason = not_sm90a(arch)) return reason;
  const bool narrow = is_8_bit(spec);
  for (const auto& [name, value, most] :
       {std::tuple{"head_dim_qk", spec.head_dim_qk, narrow ? kMaxHeadDimOf8Bits : kMaxHeadDimQk},
        std::tuple{"head_dim_v", spec.head_dim_v, narrow ? kMaxHeadDimOf8Bits : kMaxHeadDimV}})
    if (value < 8 || value > most || value % 8 != 0)
      return fmt::format("{} is {}; must be a multiple of 8 from 8 to {}", name, value, most);
  return std::nullopt;
}

std::vector<int64_t> sm90_pack_heads(const KernelSpec& spec) {
  std::vector<int64_t> values{1};
  const int rows = spec.dropout > 0 ? kWarpgroupRows / 16 : kWarpgroupRows;
  const int most = std::gcd(spec.gqa_ratio, rows);
  if (most > 1) values.push_back(most);
  const unsigned places = std::bit_ceil(static_cast<unsigned>(spec.gqa_ratio));
  if (most != spec.gqa_ratio && places <= static_cast<unsigned>(rows)) values.push_back(places);
  return values;
}

std::vector<Knob> sm90_knobs(const KernelSpec& spec, const Sm90KnobValues& values,
                             const std::vector<Knob>& own) {
  const bool causal = sm90_longest_first(spec);
  std::vector<Knob> knobs{
      {"block_m", {128, 192, 256, 64}, "query rows per tile, 64 for each consumer warpgroup"},
      {"block_n", values.block_n, "keys per step"},
      {"blocks_per_sm", {1, 2, 3}, "blocks that share a multiprocessor"},
      {"kv_slots", {2, 3}, "shared-memory slots for K, and as many for V"},
      {"kv_ring", values.kv_ring, "slots of one ring for K and V together; 0: separate slots"},
      {"overlap", {1, 0}, "softmax of a step overlaps P V of the step before"},
      {"ping_pong", {1, 0}, "warpgroups take turns in issuing products"},
      {"scheduler", causal ? std::vector<int64_t>{2, 0, 1} : std::vector<int64_t>{1, 2, 0},
       "0: one tile per block, 1: static persistent, 2: dynamic"},
      {"l2_section_mb", values.l2_section_mb,
       "MB of K and V of heads processed together; 0: head by head"},
      {"o_staging", {1, 0}, "1: O is stored through shared memory and TMA, 0: by 16-byte stores"}};
  knobs.insert(knobs.end(), own.begin(), own.end());
  knobs.push_back(
      {"kv_splits", {1, 2, 3, 4, 6, 8, 12, 16, 32}, "blocks that share the keys of one tile"});
  return knobs;
}

PrefillSm90Config sm90_layout_config(const KernelSpec& spec, const Config& c) {
  const auto knob = [&](std::string_view name) { return static_cast<int>(c.at(name)); };
  return {knob("block_m"),
          knob("block_n"),
          static_cast<int>(c.get("blocks_per_sm", 1)),
          knob("kv_slots"),
          knob("kv_ring"),
          static_cast<int>(c.get("k_parts", 1)),
          static_cast<int>(c.get("o_staging", 0)),
          spec.head_dim_qk,
          slice_of(spec, c).head_dim_v,
          dtype_bytes(spec.dtype_kv),
          c.get("transpose_inside", 0) != 0};
}

namespace {

using Broken = std::optional<std::string>;

Broken broken_if(bool broken, std::string sentence) {
  return broken ? Broken(std::move(sentence)) : Broken();
}

// True for sections that are narrower than most devices' L2.
bool narrow_sections(const Config& c) {
  return c.at("l2_section_mb") > 0 && c.at("l2_section_mb") < 32;
}

// Refuses combinations that make no sense or never pay.
std::vector<Constraint> usage_rules(const KernelSpec& spec) {
  return {
      {"splits",
       {"kv_splits", "scheduler", "kv_slots", "l2_section_mb"},
       [=](const Config& c) {
         return broken_if(
             c.at("kv_splits") > 1 &&
                 (c.at("scheduler") != 0 || c.at("kv_slots") > 2 || narrow_sections(c)),
             "kv_splits above 1 needs scheduler 0 (one tile per block), kv_slots up to 2 and an "
             "l2_section_mb of 32 or 0");
       }},
      {"sections",
       {"l2_section_mb", "scheduler"},
       [=](const Config& c) {
         const int64_t section = c.at("l2_section_mb");
         return broken_if(
             (section == 8 || section == 4) && c.at("scheduler") != 2,
             "l2_section_mb 8 and 4 are for short sequences and devices with little L2, "
             "with scheduler 2 (dynamic)");
       }},
      {"packed",
       {"pack_heads", "l2_section_mb"},
       [=](const Config& c) {
         return broken_if(c.get("pack_heads", 1) > 1 && narrow_sections(c),
                          "pack_heads above 1 needs an l2_section_mb of 32 or 0");
       }},
      {"ping_pong",
       {"ping_pong", "block_m", "overlap"},
       [=](const Config& c) {
         return broken_if(c.at("ping_pong") && (c.at("block_m") < 128 || !c.at("overlap")),
                          "ping_pong needs 2 warpgroups (block_m 128) and overlap");
       }},
      {"ring",
       {"kv_ring", "kv_slots"},
       [=](const Config& c) {
         return broken_if(c.at("kv_ring") &&
                              (c.at("kv_slots") != 2 || spec.head_dim_qk + spec.head_dim_v <= 128),
                          "kv_ring is for head dims above 64, with kv_slots 2");
       }},
      {"small_tiles",
       {"blocks_per_sm", "block_m"},
       [=](const Config& c) {
         return broken_if(c.at("blocks_per_sm") > 1 && c.at("block_m") > 128,
                          "several blocks per multiprocessor need block_m 64 or 128");
       }},
      {"no_overlap",
       {"overlap", "blocks_per_sm"},
       [=](const Config& c) {
         return broken_if(
             !c.at("overlap") && c.at("blocks_per_sm") == 1,
             "overlap 0 pays only where other blocks fill the gaps: blocks_per_sm 2 or 3");
       }},
  };
}

// The shared memory that a spec's score stage may need.
struct ScoreNeeds {
  bool stages_line;  // for the rows of a captured tensor (score_stage_layout.h)
  // For the terms on the diagonals of a step (score_stage_layout.h), in some configs
  bool adds_diagonals;
};

ScoreNeeds score_needs(const KernelSpec& spec) {
  if (!has_score_stage(spec)) return {};
  const score::Program program = score_stage_program(spec).program;
  const bool adds =
      !is_8_bit(spec) && !has_wide_heads(spec) && score::adds_along_diagonals(program);
  return {score::stages_line(program), adds};
}

bool shares_diagonals(const ScoreNeeds& needs, const Config& config) {
  return needs.adds_diagonals && config.get("pack_heads", 1) == 1 && config.get("kv_ring", 0) == 0;
}

int shared_bytes(const PrefillSm90Config& c, const ScoreNeeds& needs, bool diagonals) {
  const PrefillSm90Layout layout = prefill_sm90_layout(c);
  if (diagonals)
    return diagonals_offset(layout.bytes) + diagonals_bytes(c.block_m, c.block_n, layout.k_slots);
  if (needs.stages_line)
    return score_tile_offset(layout.bytes) + score_tile_bytes(c.block_m, c.block_n);
  return layout.bytes;
}

bool fits_shared(const Arch& arch, const PrefillSm90Config& c, int bytes) {
  return bytes <= arch.shared_bytes_per_block &&
         c.blocks_per_sm * (bytes + reserved_shared_bytes(arch)) <= arch.shared_bytes_per_sm;
}

PrefillSm90Registers registers_of(const KernelSpec& spec, const Config& c) {
  return prefill_sm90_registers(
      static_cast<int>(c.at("block_m")) / kWarpgroupRows,
      static_cast<int>(c.get("blocks_per_sm", 1)),
      is_8_bit(spec.dtype_kv) ? kProducer8BitRegisters : kProducerRegisters);
}

// Returns the number of accumulators that fit besides addresses, row statistics and temporaries:
// with more, ptxas spills or serialises wgmma.
int accumulator_limit(const PrefillSm90Registers& registers) {
  const int available = registers.moved ? registers.consumer : registers.launch;
  return available - (available > 200 ? 28 : 32);
}

// Registers for rows that come through shared memory: addresses, and data read ahead.
constexpr int kStagingRegisters = 8;

// The knobs that sm90_layout_config reads, if a family has them.
const std::vector<std::string> kLayoutKnobs{"block_m", "block_n",   "blocks_per_sm",    "kv_slots",
                                            "kv_ring", "o_staging", "transpose_inside", "v_slices",
                                            "k_parts", "pack_heads"};

std::vector<std::string> layout_and_splits() {
  std::vector<std::string> knobs = kLayoutKnobs;
  knobs.emplace_back("kv_splits");
  return knobs;
}

}  // namespace

std::vector<Constraint> sm90_room_rules(const KernelSpec& spec, const Arch& arch,
                                        Sm90Accumulators accumulators) {
  const ScoreNeeds needs = score_needs(spec);
  const bool stages = needs.stages_line;
  return {
      {"registers",
       {"block_m", "block_n", "blocks_per_sm", "overlap", "v_slices"},
       [=](const Config& c) {
         const int needed = accumulators(spec, c) + (stages ? kStagingRegisters : 0);
         const int most = accumulator_limit(registers_of(spec, c));
         return broken_if(needed > most, fmt::format("accumulators take {} registers of at most {}",
                                                     needed, most));
       }},
      {"operands",
       {"block_m", "block_n", "blocks_per_sm", "v_slices"},
       [=](const Config& c) {
         const PrefillSm90Registers registers = registers_of(spec, c);
         const int64_t accumulators_per_wgmma =
             std::max<int64_t>(c.at("block_n"), wgmma_columns_of_v(slice_of(spec, c).head_dim_v)) /
             2;
         const int most = registers.launch - 24;  // besides A, descriptors and addresses
         return broken_if(
             accumulators_per_wgmma > most,
             fmt::format("one wgmma has {} accumulators; a launch of {} registers holds {}",
                         accumulators_per_wgmma, registers.launch, most));
       }},
      {"split_parts", layout_and_splits(),
       [=](const Config& c) {
         const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, c));
         const int parts = layout.warpgroups * split_part_floats(slice_of(spec, c).head_dim_v) * 4;
         return broken_if(c.get("kv_splits", 1) > 1 && parts > layout.q_full,
                          fmt::format("kv_splits above 1 needs {} bytes where Q, K and V have {}",
                                      parts, layout.q_full));
       }},
      {"shared_memory", kLayoutKnobs,
       [=](const Config& c) {
         const PrefillSm90Config config = sm90_layout_config(spec, c);
         const int bytes = shared_bytes(config, needs, shares_diagonals(needs, c));
         return broken_if(!fits_shared(arch, config, bytes),
                          fmt::format("needs {} bytes of shared memory in each of {} blocks", bytes,
                                      config.blocks_per_sm));
       }},
  };
}

namespace {

// Allows o_staging 0 only if O does not fit in shared memory with everything else.
Constraint staging_rule(const KernelSpec& spec, const Arch& arch) {
  const ScoreNeeds needs = score_needs(spec);
  return {"o_staging", kLayoutKnobs, [=](const Config& c) {
            PrefillSm90Config staged = sm90_layout_config(spec, c);
            staged.o_staging = 1;
            const bool fits =
                fits_shared(arch, staged, shared_bytes(staged, needs, shares_diagonals(needs, c)));
            return broken_if(!c.at("o_staging") && !has_wide_v(spec) && fits,
                             "o_staging 0 is for configs whose O does not fit in shared memory");
          }};
}

}  // namespace

std::vector<Constraint> sm90_rules(const KernelSpec& spec, const Arch& arch,
                                   Sm90Accumulators accumulators) {
  std::vector<Constraint> all = usage_rules(spec);
  for (Constraint& rule : sm90_room_rules(spec, arch, accumulators)) all.push_back(std::move(rule));
  all.push_back(staging_rule(spec, arch));
  return all;
}

int sm90_shared_bytes(const KernelSpec& spec, const Config& config) {
  const ScoreNeeds needs = score_needs(spec);
  return shared_bytes(sm90_layout_config(spec, config), needs, shares_diagonals(needs, config));
}

bool sm90_adds_diagonals(const KernelSpec& spec, const Config& config) {
  return shares_diagonals(score_needs(spec), config);
}

Resources sm90_resources(const KernelSpec& spec, const Arch& arch, const Config& config) {
  const int warpgroups = prefill_sm90_layout(sm90_layout_config(spec, config)).warpgroups;
  const PrefillSm90Registers registers = registers_of(spec, config);
  return {.threads = (warpgroups + 1) * kWarpgroupThreads,
          .shared_bytes = sm90_shared_bytes(spec, config),
          .max_registers = registers.moved ? registers.launch : arch.max_registers_per_thread,
          .min_blocks_per_sm = static_cast<int>(config.get("blocks_per_sm", 1))};
}

}  // namespace attune
