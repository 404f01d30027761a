// SPDX-License-Identifier: Apache-2.0
// prefill_sm90: TMA + wgmma attention forward for sm_90a (Hopper). The kernel is
// templates/cuda/prefill_sm90/prefill_sm90.cu. LOG.md beside it has the numbers behind the choices.
//
// How a config is chosen for a problem, in the order of this file:
// 1. refused() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs: the values of knobs(), and the rules of rules.cpp.
// 3. candidates() returns configs that won on an H200, without those that do not suit the masks.
// 4. default_config() gives them to sm90_fastest() (cost.cpp). That function splits keys, sets
//    l2_section_mb, drops illegal configs, and returns the one with the fewest
//    sm90_predicted_clocks(). For a spec with score programs with_room() then adapts the config to
//    the registers that are left.
// 5. structure() and sizes() return the launch of a config (launch.cpp).
// The tuner reads space() and predicted_cost() instead, and times what it finds. So a winner may
// have values that no candidate has, such as block_n 176.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/families/prefill/sm90/launch.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/families/served.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "generator/score/analysis/positions.hpp"
#include "generator/score/print/source_text.hpp"

namespace attune {
namespace {

// Returns why the family does not serve the spec; nullopt if it does.
std::optional<std::string> refused(const KernelSpec& spec, const Arch& arch) {
  if (auto reason = sm90_refusal(spec, arch)) return reason;
  if (spec.dtype_q != Dtype::kBf16 && spec.dtype_q != Dtype::kFp16)
    return fmt::format("dtype_q is {}; this template serves bf16 and fp16",
                       dtype_name(spec.dtype_q));
  if (spec.dtype_kv != spec.dtype_q)
    return fmt::format("dtype_kv is {}; must be equal to dtype_q, {}", dtype_name(spec.dtype_kv),
                       dtype_name(spec.dtype_q));
  if (spec.dtype_o != spec.dtype_q)
    return fmt::format("dtype_o is {}; must be equal to dtype_q, {}", dtype_name(spec.dtype_o),
                       dtype_name(spec.dtype_q));
  return std::nullopt;
}

int panels_of(int head_dim) { return (head_dim + kPanelColumns - 1) / kPanelColumns; }

// Returns 1, and the counts that divide the panels of K.
std::vector<int64_t> part_counts(const KernelSpec& spec) {
  std::vector<int64_t> counts{1};
  for (int count = 2; count <= panels_of(spec.head_dim_qk); ++count)
    if (panels_of(spec.head_dim_qk) % count == 0) counts.push_back(count);
  return counts;
}

// Adapts the knobs to heads of more than 256 columns: K and V are loaded in parts, and one slot of
// each may be all that fits.
void widen(const KernelSpec& spec, std::vector<Knob>* knobs) {
  for (Knob& knob : *knobs) {
    if (knob.name == "kv_slots") knob.values = {2, 1, 3};
    if (knob.name == "o_staging" && has_wide_v(spec)) knob.values = {0};
  }
  // They come first, since most rules read them.
  std::vector<Knob> own;
  add_v_slices(spec, {2, 1, 3, 4}, &own);
  own.push_back({"k_parts", part_counts(spec), "parts in which a tile of K is loaded"});
  knobs->insert(knobs->begin(), own.begin(), own.end());
}

std::vector<Knob> knobs(const KernelSpec& spec) {
  const bool causal = sm90_longest_first(spec);
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  const std::vector<int64_t> block_n = widest <= 128   ? std::vector<int64_t>{64, 80, 96, 128, 176}
                                       : widest <= 256 ? std::vector<int64_t>{48, 64, 80, 96, 112}
                                                       : std::vector<int64_t>{16, 32, 48, 64, 80};
  const std::vector<int64_t> sections = !causal ? std::vector<int64_t>{0}
                                        : spec.window_left >= 0 || spec.mask == Mask::kNone
                                            ? std::vector<int64_t>{32, 0}
                                            : std::vector<int64_t>{32, 16, 8, 4};
  std::vector<Knob> all = sm90_knobs(
      spec, {block_n, {0, 3, 5}, sections},
      {{"row_max", {0, 1}, "a larger row maximum is found by 0: a test in each step, 1: the sums"},
       {"pack_heads", sm90_pack_heads(spec), "heads of a group that share the rows of a tile"}});
  if (has_wide_heads(spec)) widen(spec, &all);
  return all;
}

// Ties k_parts to other knobs.
Constraint parts_rule() {
  return {"parts",
          {"k_parts", "kv_ring", "kv_slots", "block_m"},
          [](const Config& c) -> std::optional<std::string> {
            if (c.at("k_parts") == 1 ||
                (c.at("kv_ring") == 0 && c.at("kv_slots") == 1 && c.at("block_m") >= 128))
              return std::nullopt;
            return "k_parts above 1 needs one slot of K (kv_slots 1, kv_ring 0) and two warpgroups "
                   "(block_m 128); with one warpgroup ptxas 13.0 serialises wgmma";
          }};
}

// Returns the columns of Q and K in one group of products: a part's, or all if k_parts is 1.
int part_columns(const KernelSpec& spec, const Config& config) {
  const auto parts = static_cast<int>(config.get("k_parts", 1));
  return parts == 1 ? spec.head_dim_qk : panels_of(spec.head_dim_qk) / parts * kPanelColumns;
}

// Returns the registers that the accumulators of a consumer thread take.
int accumulators(const KernelSpec& spec, const Config& c) {
  return prefill_sm90_accumulators(static_cast<int>(c.at("block_n")), slice_of(spec, c).head_dim_v,
                                   c.at("overlap") != 0);
}

// A config that won somewhere on an H200 (table in templates/cuda/prefill_sm90/LOG.md). A row of
// the tables below names only the members that differ from the usual values.
struct Candidate {
  int block_m = 128, block_n = 128, blocks_per_sm = 1, kv_slots = 2, kv_ring = 0;
  int overlap = 1, ping_pong = 1, o_staging = 1;
  int row_max = 0;         // 0 under a left window if blocks share a multiprocessor
  bool persistent = true;  // false: one tile per block
  bool narrow_v = false;   // only for a causal mask and a V narrower than K
};

constexpr Candidate kUpTo64[] = {
    {.block_m = 192, .row_max = 1},
    {.block_m = 256, .block_n = 64, .kv_slots = 3, .ping_pong = 0, .row_max = 1},
    {.block_m = 256, .block_n = 64, .kv_slots = 3, .row_max = 1},
    {.block_n = 64, .blocks_per_sm = 2, .kv_slots = 3, .overlap = 0, .ping_pong = 0, .row_max = 1},
    {.block_n = 80, .blocks_per_sm = 2, .overlap = 0, .ping_pong = 0},
    {.block_m = 64, .block_n = 64, .blocks_per_sm = 3, .kv_slots = 3, .ping_pong = 0, .row_max = 1},
    {.block_m = 64, .block_n = 64, .ping_pong = 0, .persistent = false},
};
constexpr Candidate kUpTo128[] = {
    {.kv_ring = 5, .row_max = 1},
    {.row_max = 1},
    {.ping_pong = 0},
    {.block_m = 192, .block_n = 80, .row_max = 1},
    {.block_m = 192, .block_n = 96, .row_max = 1},
    {.block_m = 192, .block_n = 96, .kv_ring = 5, .row_max = 1},
    {.block_m = 64, .block_n = 96, .ping_pong = 0, .persistent = false},
};
constexpr Candidate kUpTo256[] = {
    {.block_n = 64, .kv_ring = 5, .ping_pong = 0, .o_staging = 0, .row_max = 1},
    {.block_n = 64, .kv_ring = 5, .ping_pong = 0, .row_max = 1},
    {.block_m = 192, .block_n = 64, .kv_ring = 5, .o_staging = 0, .row_max = 1},
    {.block_n = 96, .ping_pong = 0, .narrow_v = true},
    {.block_n = 96, .ping_pong = 0, .row_max = 1, .narrow_v = true},
    {.block_n = 80, .ping_pong = 0, .o_staging = 0, .persistent = false},
    {.block_n = 80, .ping_pong = 0},
    {.block_m = 64, .block_n = 64, .ping_pong = 0, .persistent = false},
};
constexpr Candidate kAnyHeadDim[] = {
    {.block_n = 64, .ping_pong = 0},
    {.block_n = 64, .ping_pong = 0, .o_staging = 0},
};

Config config_of(const KernelSpec& spec, const Candidate& c, int64_t pack_heads) {
  const bool causal = sm90_longest_first(spec);
  const bool no_sums = spec.window_left >= 0 && c.blocks_per_sm > 1;
  return Config({{"block_m", c.block_m},
                 {"block_n", c.block_n},
                 {"blocks_per_sm", c.blocks_per_sm},
                 {"kv_slots", c.kv_slots},
                 {"kv_ring", c.kv_ring},
                 {"overlap", c.overlap},
                 {"ping_pong", c.ping_pong},
                 {"scheduler", !c.persistent ? 0
                               : causal      ? 2
                                             : 1},
                 {"l2_section_mb", causal ? 32 : 0},
                 {"o_staging", c.o_staging},
                 {"row_max", no_sums ? 0 : c.row_max},
                 {"pack_heads", pack_heads},
                 {"kv_splits", 1}});
}

// Returns candidates of heads of up to 256 columns: winners, then two that fit any head dims.
std::vector<Config> usual_configs(const KernelSpec& spec) {
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  const bool narrow_v = sm90_longest_first(spec) && spec.head_dim_v < spec.head_dim_qk;
  std::vector<Config> configs;
  const auto add = [&](std::span<const Candidate> candidates) {
    for (const Candidate& candidate : candidates)
      for (const int64_t heads : sm90_pack_heads(spec))
        if (narrow_v || !candidate.narrow_v) configs.push_back(config_of(spec, candidate, heads));
  };
  add(widest <= 64    ? std::span<const Candidate>(kUpTo64)
      : widest <= 128 ? std::span<const Candidate>(kUpTo128)
                      : std::span<const Candidate>(kUpTo256));
  add(kAnyHeadDim);
  return configs;
}

constexpr int64_t kUsualParts = 4;  // more parts wait more often

// Returns the value of k_parts for one slot of K.
int64_t usual_parts(const KernelSpec& spec) {
  const std::vector<int64_t> counts = part_counts(spec);
  const auto above = std::upper_bound(counts.begin(), counts.end(), kUsualParts);
  return *(above - 1) > 1 ? *(above - 1) : counts.back();
}

// Returns candidates for heads of more than 256 columns; most are not legal for most specs.
std::vector<Config> wide_configs(const KernelSpec& spec) {
  Config first;
  std::vector<int64_t> slices{1}, packed{1}, staging;
  for (const Knob& knob : knobs(spec)) {
    first.set(knob.name, knob.values.front());
    if (knob.name == "v_slices") slices = {1, 2, 3};
    if (knob.name == "pack_heads") packed = knob.values;
    if (knob.name == "o_staging") staging = knob.values;
  }
  first.set("ping_pong", 0);
  first.set("row_max", 1);
  std::vector<Config> configs;
  const auto add = [&](int block_m, int block_n, int kv_slots) {
    for (const int64_t slice_count : slices)
      for (const int64_t heads : packed)
        for (const int64_t o_staging : staging) {
          Config c = first;
          if (c.has("v_slices")) c.set("v_slices", slice_count);
          c.set("k_parts", kv_slots == 1 && block_m > 64 ? usual_parts(spec) : 1);
          c.set("block_m", block_m);
          c.set("block_n", block_n);
          c.set("kv_slots", kv_slots);
          c.set("o_staging", o_staging);
          c.set("pack_heads", heads);
          configs.push_back(std::move(c));
        }
  };
  for (const int block_m : {128, 64})
    for (const int block_n : {80, 64, 48, 32, 16})
      for (const int kv_slots : {2, 1}) add(block_m, block_n, kv_slots);
  return configs;
}

// Returns the block sizes of a mask: the divisors by which its program divides positions. For
// callers' maps that hide keys, assumes 128.
score::Blocks blocks_of_mask(const KernelSpec& spec) {
  if (!has_mask_program(spec)) return {};
  return hides_by_map(spec) ? score::Blocks{128, 128}
                            : score::blocks_of(mask_program(spec).program);
}

// Drops tiles that straddle such blocks, because they visit more of them. Ignores narrow blocks.
void keep_tiles_of_blocks(const score::Blocks& blocks, std::vector<Config>* configs) {
  constexpr int64_t kNarrowest = 64;
  for (const auto& [knob, block] : {std::pair{"block_m", blocks.rows}, {"block_n", blocks.keys}}) {
    const auto straddles = [&, knob = knob, block = block](const Config& config) {
      return block % config.at(knob) != 0;
    };
    if (block < kNarrowest || std::all_of(configs->begin(), configs->end(), straddles)) continue;
    std::erase_if(*configs, straddles);
  }
}

// Drops configs that do not add diagonals. Packed heads pay only for few queries, and their rows
// share no diagonals. A ring that also holds V prevents it, which costs more than the ring gains.
void keep_diagonals(const KernelSpec& spec, const Shape& shape, std::vector<Config>* configs) {
  constexpr int64_t kFewQueries = 256;
  const auto shares = [&](const Config& c) { return sm90_adds_diagonals(spec, c); };
  if (shape.seqlen_q >= kFewQueries && std::any_of(configs->begin(), configs->end(), shares))
    std::erase_if(*configs, [&](const Config& c) { return !shares(c); });
}

// True if the score stage needs addresses of elements in addition to limits of a mask, or to other
// captures.
bool crowds_registers(const KernelSpec& spec) {
  if (!reads_elements_to_score(spec)) return false;
  const bool limited = spec.mask != Mask::kNone || spec.window_left >= 0 || spec.window_right >= 0;
  return limited || score_stage_program(spec).program.captures().size() > 1;
}

// Drops configs with several blocks per multiprocessor. They leave a thread 80 registers, with
// which such score stages spill.
void keep_single_blocks(std::vector<Config>* configs) {
  std::erase_if(*configs, [](const Config& c) { return c.at("blocks_per_sm") > 1; });
}

// Returns the configs among which default_config() chooses.
std::vector<Config> candidates(const KernelSpec& spec, const Shape& shape) {
  std::vector<Config> configs = has_wide_heads(spec) ? wide_configs(spec) : usual_configs(spec);
  keep_tiles_of_blocks(blocks_of_mask(spec), &configs);
  if (has_score_stage(spec)) keep_diagonals(spec, shape, &configs);
  if (crowds_registers(spec)) keep_single_blocks(&configs);
  return configs;
}

// With 256 rows a thread has 96 registers, and masks need more.
constexpr int64_t kRowsOfMaskedTiles = 192;

// Leaves a mask program its registers.
Config with_room_for_mask(const KernelSpec& spec, const SearchSpace& legal, const Config& config) {
  const int columns = slice_of(spec, config).head_dim_v;  // columns of O, in registers
  const bool dense = reads_elements_to_hide(spec);        // needs registers for addresses
  const bool tall = config.at("block_m") > 128;
  const bool crowded = dense || spec.dropout > 0;
  const int64_t block_n = !crowded ? 128 : dense && columns > 128 ? 80 : tall ? 96 : 128;
  return with_room_for_scores(legal, config, block_n, kRowsOfMaskedTiles);
}

// Leaves a score stage its registers. With four warpgroups, they then take turns. For a result that
// is one tanh, row maxima come from the sums. Timings: templates/cuda/prefill_sm90/LOG.md.
Config with_room_for_stage(const KernelSpec& spec, const SearchSpace& legal, const Config& config) {
  const int columns = slice_of(spec, config).head_dim_v;  // columns of O, in registers
  const score::Program stage = score_stage_program(spec).program;
  // Addresses of many captures, or of captures that each element of a mask reads, need registers.
  const bool many = reads_elements_to_hide(spec) || spec.dropout > 0 || stage.captures().size() > 1;
  const int64_t block_n = columns > 256 ? 32 : columns > 128 ? (many ? 48 : 80) : (many ? 80 : 128);
  const int64_t block_m =
      has_mask_program(spec) || crowds_registers(spec) ? kRowsOfMaskedTiles : INT64_MAX;
  Config chosen = with_room_for_scores(legal, config, block_n, block_m);
  const auto set = [&](const char* knob, int64_t value) {
    Config changed = chosen;
    changed.set(knob, value);
    if (!legal.broken(changed)) chosen = changed;
  };
  if (chosen.at("block_m") == 256) set("ping_pong", 1);
  if (score::is_tanh(stage)) set("row_max", 1);
  return chosen;
}

// Returns the config, or one that leaves the spec's score programs their registers.
Config with_room(const KernelSpec& spec, const SearchSpace& legal, const Config& config) {
  if (!is_scored(spec)) return config;
  if (!has_score_stage(spec)) return with_room_for_mask(spec, legal, config);
  if (sm90_adds_diagonals(spec, config)) return config;  // the loop is that of a plain kernel
  return with_room_for_stage(spec, legal, config);
}

class PrefillSm90 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "prefill_sm90"; }
  std::string_view source_path() const override { return "cuda/prefill_sm90/prefill_sm90.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm90/prefill_sm90_knobs.cuh";
  }
  int revision() const override { return 2; }  // 2: blocks that split keys are clusters

  const Served& serves() const override { return serves_masks_and_dropout(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Constraint> rules = sm90_rules(spec, arch, accumulators);
    if (has_wide_heads(spec)) rules.push_back(parts_rule());
    return {knobs(spec), std::move(rules)};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const SearchSpace legal = space(spec, arch);
    return with_room(spec, legal,
                     sm90_fastest(name(), legal, candidates(spec, shape), spec, shape, device,
                                  sm90_predicted_clocks));
  }

  KernelSpec compiled_spec(const KernelSpec& spec, const Config& config) const override {
    return slice_of(spec, config);
  }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    std::vector<Constant> constants = v_slice_constants(spec, config);
    constants.push_back({"int", "kRescaleThreshold", "8"});
    return constants;
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    return sm90_resources(spec, arch, config);
  }

  bool steps_scores() const override { return true; }
  bool adds_diagonals(const KernelSpec& spec, const Config& config) const override {
    return sm90_adds_diagonals(spec, config);
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    const int part = part_columns(spec, config);
    return {{"generated/wgmma.cuh",
             emit_wgmma_products({spec.dtype_q, static_cast<int>(config.at("block_n")), part,
                                  slice_of(spec, config).head_dim_v, part < spec.head_dim_qk,
                                  adds_diagonals(spec, config)})}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    LaunchStructure all = sm90_structure(spec, config);
    StepStructure& step = all.steps[0];
    all.keeps_score_units =
        has_score_stage(spec) && score::keeps_units(score_stage_program(spec).program);
    step.early = true;  // waits for the previous grid before it touches memory
    const int block_n = static_cast<int>(config.at("block_n"));
    const int packed = static_cast<int>(config.get("pack_heads", 1));
    const int head_rows = kWarpgroupRows / packed;
    const int heads = std::min(packed, spec.gqa_ratio);
    step.tensor_maps = {{Operand::kQ, kPanelColumns, head_rows, kPanelRowBytes, heads},
                        {Operand::kK, kPanelColumns, block_n, kPanelRowBytes},
                        {Operand::kV, kPanelColumns, block_n, kPanelRowBytes},
                        {Operand::kO, kPanelColumns, head_rows, kPanelRowBytes, heads}};
    add_max_logits(spec, &all);
    add_block_map(spec, &all);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    LaunchSizes sizes = sm90_sizes(spec, config, shape, device);
    add_max_logits(spec, &sizes);
    add_block_map(spec, shape, sm90_map_shape(config, shape), &sizes);
    return sizes;
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return sm90_predicted_clocks(spec, config, shape, device);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return refused(spec, arch);
  }
};

}  // namespace

const KernelTemplate& prefill_sm90() {
  static const PrefillSm90 instance;
  return instance;
}

}  // namespace attune
