// SPDX-License-Identifier: Apache-2.0
// prefill_sm90: TMA + wgmma attention forward for sm_90a (Hopper). Source:
// templates/cuda/prefill_sm90/prefill_sm90.cu. The problems that prefill_sm90 serves, its knobs and
// their rules, and its launch. The numbers behind the rules are in
// templates/cuda/prefill_sm90/LOG.md.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/error.hpp"
#include "generator/families/prefill/score_room.hpp"
#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/families/prefill/sm90/wide.hpp"
#include "generator/families/prefill/v_slices.hpp"
#include "generator/families/served.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "generator/score/analysis/divisors.hpp"
#include "generator/score/print/source_text.hpp"

namespace attune {
namespace {

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
       {"rescale_threshold", {8}, "log2 of a row maximum's growth up to which O is not rescaled"},
       {"pack_heads", sm90_pack_heads(spec), "heads of a group that share the rows of a tile"}});
  if (has_wide_heads(spec)) sm90_widen(spec, &all);
  return all;
}

// With 256 rows a thread has 96 registers, and masks need more.
constexpr int64_t kRowsOfMaskedTiles = 192;

int accumulators(const KernelSpec& spec, const Config& c) {
  return prefill_sm90_accumulators(static_cast<int>(c.at("block_n")), slice_of(spec, c).head_dim_v,
                                   c.at("overlap") != 0);
}

Config config_of(std::initializer_list<std::pair<const char*, int>> changes, bool causal) {
  Config c({{"block_m", 128},
            {"block_n", 128},
            {"ctas_per_sm", 1},
            {"stages", 2},
            {"kv_ring", 0},
            {"overlap", 1},
            {"ping_pong", 1},
            {"scheduler", causal ? 2 : 1},
            {"l2_section_mb", causal ? 32 : 0},
            {"o_staging", 1},
            {"row_max", 0},
            {"rescale_threshold", 8},
            {"pack_heads", 1},
            {"kv_splits", 1}});
  for (const auto& [knob, value] : changes) c.set(knob, value);
  return c;
}

// Returns the configs that won somewhere on an H200 (table in templates/cuda/prefill_sm90/LOG.md),
// then two that fit any head dims.
std::vector<Config> proven_configs(const KernelSpec& spec) {
  if (has_wide_heads(spec)) return sm90_wide_configs(spec, knobs(spec));
  const bool causal = sm90_longest_first(spec);
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  std::vector<Config> configs;
  const auto add = [&](std::initializer_list<std::pair<const char*, int>> changes) {
    for (const int64_t heads : sm90_pack_heads(spec)) {
      configs.push_back(config_of(changes, causal));
      configs.back().set("pack_heads", heads);
    }
  };
  if (widest <= 64) {
    add({{"block_m", 192}, {"row_max", 1}});
    for (const int ping_pong : {0, 1})
      add({{"block_m", 256},
           {"block_n", 64},
           {"stages", 3},
           {"row_max", 1},
           {"ping_pong", ping_pong}});
    add({{"block_n", 64},
         {"ctas_per_sm", 2},
         {"stages", 3},
         {"overlap", 0},
         {"ping_pong", 0},
         {"row_max", spec.window_left < 0 ? 1 : 0}});
    add({{"block_n", 80}, {"ctas_per_sm", 2}, {"overlap", 0}, {"ping_pong", 0}});
    add({{"block_m", 64},
         {"block_n", 64},
         {"ctas_per_sm", 3},
         {"stages", 3},
         {"ping_pong", 0},
         {"row_max", spec.window_left < 0 ? 1 : 0}});
    add({{"block_m", 64}, {"block_n", 64}, {"scheduler", 0}, {"ping_pong", 0}});
  } else if (widest <= 128) {
    add({{"kv_ring", 5}, {"row_max", 1}});
    add({{"row_max", 1}});
    add({{"ping_pong", 0}});
    add({{"block_m", 192}, {"block_n", 80}, {"row_max", 1}});
    for (const int ring : {0, 5})
      add({{"block_m", 192}, {"block_n", 96}, {"kv_ring", ring}, {"row_max", 1}});
    add({{"block_m", 64}, {"block_n", 96}, {"scheduler", 0}, {"ping_pong", 0}});
  } else {
    for (const int o_staging : {0, 1})
      add({{"block_n", 64},
           {"kv_ring", 5},
           {"ping_pong", 0},
           {"o_staging", o_staging},
           {"row_max", 1}});
    add({{"block_m", 192}, {"block_n", 64}, {"kv_ring", 5}, {"o_staging", 0}, {"row_max", 1}});
    for (const int row_max : {0, 1})
      if (causal && spec.head_dim_v < spec.head_dim_qk)
        add({{"block_n", 96}, {"ping_pong", 0}, {"row_max", row_max}});
    add({{"block_n", 80}, {"ping_pong", 0}, {"o_staging", 0}, {"scheduler", 0}});
    add({{"block_n", 80}, {"ping_pong", 0}});
    add({{"block_m", 64}, {"block_n", 64}, {"scheduler", 0}, {"ping_pong", 0}});
  }
  add({{"block_n", 64}, {"ping_pong", 0}});
  add({{"block_n", 64}, {"ping_pong", 0}, {"o_staging", 0}});
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

// Adapts a config to its score stage. With four warpgroups, they take turns. For a result that is
// one tanh, row maxima come from the sums. Timings: templates/cuda/prefill_sm90/LOG.md.
Config with_score_stage(const SearchSpace& legal, Config config, const score::Program& stage) {
  const auto set = [&](const char* knob, int64_t value) {
    Config changed = config;
    changed.set(knob, value);
    if (!legal.broken(changed)) config = changed;
  };
  if (config.at("block_m") == 256) set("ping_pong", 1);
  if (score::is_tanh(stage)) set("row_max", 1);
  return config;
}

// True if the score stage needs addresses of elements in addition to limits of a mask, or to other
// captures.
bool crowds_registers(const KernelSpec& spec) {
  if (!reads_elements_to_score(spec)) return false;
  const bool limited = spec.mask != Mask::kNone || spec.window_left >= 0 || spec.window_right >= 0;
  return limited || score_stage_program(spec).program.captures().size() > 1;
}

// Drops configs with several blocks per multiprocessor. They leave a thread 80 registers, with
// which such stages spill.
void keep_single_blocks(std::vector<Config>* configs) {
  std::erase_if(*configs, [](const Config& c) { return c.at("ctas_per_sm") > 1; });
}

class PrefillSm90 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "prefill_sm90"; }
  std::string_view source_path() const override { return "cuda/prefill_sm90/prefill_sm90.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm90/prefill_sm90_knobs.cuh";
  }

  const Served& serves() const override { return serves_masks_and_dropout(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Constraint> rules = sm90_rules(spec, arch, accumulators);
    if (has_wide_heads(spec)) rules.push_back(sm90_parts_rule());
    return {knobs(spec), std::move(rules)};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    std::vector<Config> proven = proven_configs(spec);
    keep_tiles_of_blocks(blocks_of_mask(spec), &proven);
    if (has_score_stage(spec)) keep_diagonals(spec, shape, &proven);
    if (crowds_registers(spec)) keep_single_blocks(&proven);
    Config config = sm90_default(*this, spec, arch, shape, device, proven, sm90_predicted_clocks);
    if (!is_scored(spec)) return config;
    const int columns = slice_of(spec, config).head_dim_v;  // columns of O, in registers
    // Many captures at a time, and captures that each element of a mask reads, need registers for
    // addresses.
    const bool dense = reads_elements_to_hide(spec);
    if (!has_score_stage(spec)) {
      const bool tall = config.at("block_m") > 128;
      const bool crowded = dense || spec.dropout > 0;
      const int64_t block_n = !crowded ? 128 : dense && columns > 128 ? 80 : tall ? 96 : 128;
      return with_room_for_scores(space(spec, arch), config, block_n, kRowsOfMaskedTiles);
    }
    if (adds_diagonals(spec, config)) return config;  // the loop is that of a plain kernel
    const score::Program stage = score_stage_program(spec).program;
    const bool many = dense || spec.dropout > 0 || stage.captures().size() > 1;
    const int64_t block_n = columns > 256   ? 32
                            : columns > 128 ? (many ? 48 : 80)
                                            : (many ? 80 : 128);
    const int64_t block_m =
        has_mask_program(spec) || crowds_registers(spec) ? kRowsOfMaskedTiles : INT64_MAX;
    const SearchSpace legal = space(spec, arch);
    return with_score_stage(legal, with_room_for_scores(legal, config, block_n, block_m), stage);
  }

  KernelSpec compiled_spec(const KernelSpec& spec, const Config& config) const override {
    return slice_of(spec, config);
  }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    return v_slice_constants(spec, config);
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
    const int part = sm90_part_columns(spec, config);
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
    add_block_map(spec, &all);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    LaunchSizes sizes = sm90_sizes(spec, config, shape, device);
    add_block_map(spec, shape, sm90_map_shape(config, shape), &sizes);
    return sizes;
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return sm90_predicted_clocks(spec, config, shape, device);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
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
};

}  // namespace

const KernelTemplate& prefill_sm90() {
  static const PrefillSm90 instance;
  return instance;
}

}  // namespace attune
