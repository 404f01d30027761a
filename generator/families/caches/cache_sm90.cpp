// SPDX-License-Identifier: Apache-2.0
// cache_sm90: op attention_kvcache in 16 bits with wgmma, for rows of several tokens. The kernel is
// templates/cuda/cache_sm90/cache_sm90.cu; README.md beside it explains the knobs.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt. fit() tells whether
//    decode_sm80 or cache_sm90 is better for the shape.
// 2. space() returns the legal configs: the values of knobs(), usage_rules(), and the rules about
//    registers and shared memory of prefill/sm90/rules.cpp.
// 3. default_config() returns the legal config of candidates() with the least predicted_cost().
// 4. predicted_cost() takes steps from the mask, and the clocks of one from step_clocks().
// 5. structure() and sizes() return the launch of a config.
// The tuner reads space() and predicted_cost() instead, and times what it finds.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "generator/core/system/error.hpp"
#include "generator/families/caches/cache_shares.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/families/prefill/sm90/launch.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/families/served.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/print/source_text.hpp"
#include "templates/shared/layouts/cache_layout.h"

namespace attune {
namespace {

constexpr int kWidestHead = 256, kLeastBoxRows = 8;

int box_rows(const KernelSpec& spec, int block_n) {
  return spec.cache.page_size > 0 ? std::gcd(spec.cache.page_size, block_n) : block_n;
}

// Keys end to end need registers besides, or 192 rows and 128 keys of head dim 64 spill.
constexpr int kRegistersOfPackedKeys = 4;

int accumulators(const KernelSpec& spec, const Config& c) {
  return prefill_sm90_accumulators(as_int(c, "block_n"), spec.head_dim_v, true) +
         (spec.cache.packed_kv ? kRegistersOfPackedKeys : 0);
}

// Returns the knobs for batch_invariant: each knob that affects bits has one value. Tiles are
// whole, with the same rows and steps for all requests.
std::vector<Knob> knobs_of_own_bits(const KernelSpec& spec) {
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  return {{"block_m", {128}, "query rows per tile, 64 for each consumer warpgroup"},
          {"block_n", {widest <= 128 ? 128 : 64}, "keys per step"},
          {"kv_slots", {2, 3, 4, 6}, "shared-memory slots for K, and as many for V"},
          {"kv_ring", {0}, "slots of one ring for K and V together; 0: separate slots"},
          {"ping_pong", {1, 0}, "warpgroups take turns in issuing products"},
          {"scheduler", {kDrawn}, "2: dynamic, whole tiles"},
          {"pack_heads", {sm90_pack_heads(spec).back()}, "heads that share the rows of a tile"},
          {"row_max", {0}, "a larger row maximum is found by a test in each step"},
          {"min_tiles", {4}, "only for scheduler 3"},
          {"tile_overhead", {2}, "only for scheduler 3"}};
}

std::vector<Knob> knobs(const KernelSpec& spec) {
  if (spec.cache.batch_invariant) return knobs_of_own_bits(spec);
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  const std::vector<int64_t> block_n = widest <= 128 ? std::vector<int64_t>{128, 64, 96, 80, 176}
                                                     : std::vector<int64_t>{64, 80, 96, 48};
  return {
      {"block_m", {128, 64, 192, 256}, "query rows per tile, 64 for each consumer warpgroup"},
      {"block_n", block_n, "keys per step"},
      {"kv_slots", {2, 3, 4, 6}, "shared-memory slots for K, and as many for V"},
      {"kv_ring", {0, 5}, "slots of one ring for K and V together; 0: separate slots"},
      {"ping_pong", {1, 0}, "warpgroups take turns in issuing products"},
      {"scheduler", {kShared, kDrawn}, "2: dynamic, whole tiles; 3: equal shares of all steps"},
      {"pack_heads", sm90_pack_heads(spec), "heads of a group that share the rows of a tile"},
      {"row_max", {0, 1}, "a larger row maximum is found by 0: a test in each step, 1: the sums"},
      {"min_tiles", {4, 2, 8}, "minimum of steps per share"},
      {"tile_overhead", {2, 1, 4}, "overhead of a tile, in steps"}};
}

// Refuses combinations that make no sense or never pay.
std::vector<Constraint> usage_rules(const KernelSpec& spec) {
  using Broken = std::optional<std::string>;
  return {
      {"ping_pong",
       {"ping_pong", "block_m"},
       [](const Config& c) -> Broken {
         if (!c.at("ping_pong") || c.at("block_m") >= 128) return {};
         return "ping_pong needs 2 warpgroups (block_m 128)";
       }},
      {"ring",
       {"kv_ring", "kv_slots"},
       [spec](const Config& c) -> Broken {
         if (!c.at("kv_ring")) return {};
         if (c.at("kv_slots") == 2 && spec.head_dim_qk + spec.head_dim_v > 128) return {};
         return "kv_ring is for head dims above 64, with kv_slots 2";
       }},
      only_shares_vary(4, 2),
      {"shared_rows",
       {"scheduler", "block_m"},
       [](const Config& c) -> Broken {
         if (c.at("scheduler") != kShared || c.at("block_m") <= 128) return {};
         return "scheduler 3 needs block_m 64 or 128: finding shares needs the registers";
       }},
  };
}

// Returns the configs among which default_config() chooses; most are not legal for most specs.
std::vector<Config> candidates(const KernelSpec& spec) {
  std::vector<Config> configs;
  for (const int64_t block_m : {128, 64, 192})
    for (const int64_t block_n : {128, 64, 96, 80, 48})
      for (const int64_t kv_slots : {2, 3, 4})
        for (const int64_t scheduler : {int64_t{kShared}, int64_t{kDrawn}})
          for (const int64_t heads : sm90_pack_heads(spec))
            for (const int64_t ring : {0, 5})
              configs.push_back(Config({{"block_m", block_m},
                                        {"block_n", block_n},
                                        {"kv_slots", kv_slots},
                                        {"kv_ring", ring},
                                        {"ping_pong", block_m >= 128 ? 1 : 0},
                                        {"scheduler", scheduler},
                                        {"pack_heads", heads},
                                        {"row_max", ring > 0 ? 1 : 0},
                                        {"min_tiles", 4},
                                        {"tile_overhead", 2}}));
  return configs;
}

// Returns the clocks of a step of a block, with the model of prefill_sm90. Keys come from L2 if
// several tiles of rows read them, else from memory.
double step_clocks(const KernelSpec& spec, const Config& c, bool reads_again) {
  const double rows = as_int(c, "block_m"), keys = as_int(c, "block_n");
  constexpr double kMmaFlops = 4096, kExponentials = 16;
  constexpr double kBytesOfMemory = 19, kBytesOfL2 = 22;
  const double mma = rows * keys * 2 * (spec.head_dim_qk + spec.head_dim_v) / kMmaFlops;
  const double exponentials = rows * keys / kExponentials;
  double clocks = std::pow(std::pow(mma, kOverlapPower) + std::pow(exponentials, kOverlapPower),
                           1 / kOverlapPower);
  const double warpgroups = rows / kWarpgroupRows;
  if (warpgroups == 1) clocks *= 1.6;
  if (c.at("ping_pong")) clocks *= 0.98;
  if (c.at("row_max")) clocks *= 0.98;
  clocks = clocks * (1 + 6.0 / keys) + 100;
  const double memory =
      keys * 2 * (spec.head_dim_qk + spec.head_dim_v) / (reads_again ? kBytesOfL2 : kBytesOfMemory);
  const double slots = c.at("kv_ring") ? 2.5 : as_int(c, "kv_slots");
  const double short_steps = keys < 128 && rows <= 128 ? 1.06 : 1.0;  // for head dim 128
  return std::max(clocks, memory * (slots * keys < 256 ? 1.1 : 1.0)) * short_steps;
}

class CacheSm90 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "cache_sm90"; }
  int revision() const override { return 2; }
  std::string_view source_path() const override { return "cuda/cache_sm90/cache_sm90.cu"; }
  std::string_view knobs_path() const override { return "cuda/cache_sm90/cache_sm90_knobs.cuh"; }
  const Served& serves() const override { return serves_caches(); }
  bool steps_scores() const override { return true; }
  Fit fit(const KernelSpec& spec, const Shape& shape) const override {
    if (shape.seqlen_q * spec.gqa_ratio > kDecodeRows) return Fit::kWell;
    return spec.cache.batch_invariant ? Fit::kNever : Fit::kPoorly;
  }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Constraint> rules = usage_rules(spec);
    for (Constraint& rule : sm90_room_rules(spec, arch, accumulators))
      rules.push_back(std::move(rule));
    return {knobs(spec), std::move(rules)};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const SearchSpace legal = space(spec, arch);
    std::optional<Config> best;
    double least = 0;
    for (const Config& config : candidates(spec)) {
      if (legal.broken(config)) continue;
      const double cost = predicted_cost(spec, arch, config, shape, device);
      if (best && cost >= least) continue;
      best = config;
      least = cost;
    }
    if (!best)
      throw Error(ErrorCode::kInternal,
                  fmt::format("cache_sm90 has no default config for {}", to_text(spec)));
    return *best;
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    return sm90_resources(spec, arch, config);
  }

  std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                        const Config&) const override {
    return {{"int", "kL2SectionMb", "0"},      {"int", "kOStaging", "0"},
            {"int", "kBlocksPerSm", "1"},      {"int", "kOverlap", "1"},
            {"int", "kRescaleThreshold", "8"}, {"int", "kKvSplits", "1"}};
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    return {{"generated/wgmma.cuh",
             emit_wgmma_products({spec.dtype_q, as_int(config, "block_n"), spec.head_dim_qk,
                                  spec.head_dim_v, false, false})}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    LaunchStructure all;
    StepStructure& step = all.steps[0];
    const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, config));
    step.parts = attention_parts(spec);
    step.parts.push_back(ArgumentPart::kCache);
    step.threads = static_cast<unsigned>((layout.warpgroups + 1) * kWarpgroupThreads);
    step.shared_bytes = static_cast<unsigned>(sm90_shared_bytes(spec, config));
    step.early = true;  // waits for the previous grid before it reads lengths
    for (const Operand operand : {Operand::kK, Operand::kV})
      step.tensor_maps.push_back({.tensor = operand,
                                  .box_columns = kPanelColumns,
                                  .box_rows = box_rows(spec, as_int(config, "block_n")),
                                  .fetches_around = false,
                                  .of_pages = true});
    if (config.at("scheduler") == kDrawn)
      all.workspace = {{.name = "tile_counter", .zeroed = true, .alignment = kTileCounterBytes}};
    else
      all.workspace = {{.name = "tickets", .zeroed = true}, {.name = "parts"}};
    all.keeps_score_units =
        has_score_stage(spec) && score::keeps_units(score_stage_program(spec).program);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, config));
    const Sm90Tiles tiles = sm90_tiles(config, shape);
    const int64_t steps = (shape.seqlen_kv + config.at("block_n") - 1) / config.at("block_n");
    // The kernel counts steps along all tiles, and tickets, in an int.
    tile_count(tiles.count() *
               std::max<int64_t>(steps + config.at("tile_overhead"), layout.warpgroups));
    const int64_t blocks = device.sm_count;
    LaunchSizes sizes{.steps = {{.grid_x = grid_extent(blocks)}}};
    if (config.at("scheduler") == kDrawn) {
      sizes.workspace = {{.columns = 1}};
    } else {
      const int groups = cache_group_tickets(static_cast<int>(blocks), layout.warpgroups);
      sizes.workspace = {{.columns = tiles.count() * layout.warpgroups + groups},
                         {.columns = cache_part_floats(kWarpgroupRows, spec.head_dim_v),
                          .rows = layout.warpgroups,
                          .heads = 2 * blocks}};
    }
    return sizes;
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const Sm90Tiles tiles = sm90_tiles(config, shape);
    const bool reads_again = tiles.count() > 4 * shape.batch * shape.num_heads_kv;
    // Shares are at different keys of different heads, so L2 helps only if it holds all of them.
    const double cached = 2.0 * (spec.head_dim_qk + spec.head_dim_v) *
                          static_cast<double>(shape.batch * shape.num_heads_kv * shape.seqlen_kv);
    const bool from_l2 = reads_again && (config.at("scheduler") == kDrawn ||
                                         cached < 0.6 * static_cast<double>(device.l2_bytes));
    const double ring = config.at("kv_ring") == 0 ? 1 : reads_again ? 0.99 : 1.01;
    const double step = step_clocks(spec, config, from_l2) * ring;
    constexpr double kTileClocks = 2500, kJoinClocks = 4000;
    const int block_n = as_int(config, "block_n");
    double steps = 0;
    for (int64_t block = 0; block < tiles.row_blocks; ++block)
      steps += static_cast<double>(
          sm90_visible_blocks(spec, shape, block * tiles.rows, tiles.rows, block_n));
    steps *= static_cast<double>(tiles.groups);
    const auto count = static_cast<double>(std::max<int64_t>(1, tiles.count()));
    const double blocks = static_cast<double>(device.sm_count);
    const double each = steps / count;
    if (config.at("scheduler") == kDrawn)
      return std::ceil(count / blocks) * (each * step + kTileClocks);
    const double workers =
        std::min(blocks, std::max(1.0, steps / static_cast<double>(config.at("min_tiles"))));
    const bool cut = count < workers || count / workers < 16;
    // Shares need registers, and their tiles read the same keys at different times.
    const double shared = as_int(config, "block_m") > kWarpgroupRows ? 1.15 : 1;
    return (steps / workers) * step * shared + std::max(1.0, count / workers) * kTileClocks +
           (cut ? kJoinClocks : 1000);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = sm90_refusal(spec, arch)) return reason;
    if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
      return fmt::format("dtype is {}; this template serves fp16 and bf16",
                         dtype_name(spec.dtype_q));
    if (is_narrow(spec.dtype_kv))
      return fmt::format("dtype_kv is {}; this template serves caches of the dtype of q: {}",
                         dtype_name(spec.dtype_kv), dtype_name(spec.dtype_q));
    for (const auto& [field, value] :
         {std::pair{"head_dim_qk", spec.head_dim_qk}, {"head_dim_v", spec.head_dim_v}})
      if (value > kWidestHead)
        return fmt::format("{} is {}; this template serves up to {}", field, value, kWidestHead);
    if (spec.cache.page_size % kLeastBoxRows != 0)
      return fmt::format("page_size is {}; this template serves multiples of {} keys",
                         spec.cache.page_size, kLeastBoxRows);
    if (has_mask_program(spec))
      return "the call has a mask program; this template masks by position only (decode_sm80 "
             "supports mask programs)";
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& cache_sm90() {
  static const CacheSm90 instance;
  return instance;
}

}  // namespace attune
