// SPDX-License-Identifier: Apache-2.0
// prefill_sm90_fp8: TMA + wgmma attention forward with 8-bit operands for sm_90a (Hopper). Source:
// templates/cuda/prefill_sm90_fp8/prefill_sm90_fp8.cu. The problems that prefill_sm90_fp8 serves,
// its knobs and their rules, and its launches. The numbers behind the rules are in
// templates/cuda/prefill_sm90_fp8/README.md.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "generator/families/prefill/score_room.hpp"
#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/families/prefill/sm90_fp8/cost.hpp"
#include "generator/families/served.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "templates/shared/layouts/prefill_sm90_fp8_layout.h"

namespace attune {
namespace {

constexpr int kLateAccumulators = 164;  // with row_max 1
constexpr const char* kTransposeEntry = "attune_transpose_v";

int accumulators(const KernelSpec& spec, const Config& c) {
  return prefill_sm90_fp8_accumulators(static_cast<int>(c.at("block_n")), spec.head_dim_v,
                                       c.at("overlap") != 0, spec.fp8.scale_block_kv);
}

// Returns the values of flush_keys. The accurate mode always flushes: the accumulator loses bits in
// long sums, if V has a mean other than 0.
std::vector<int64_t> flush_keys(const KernelSpec& spec) {
  if (spec.fp8.accuracy == Accuracy::kFast) return {0};
  return {1024, 512};
}

bool inside(const Config& c) { return c.at("transpose_inside") != 0; }

// Returns the rules of the shared layout, of the flush, and of V transposed inside.
std::vector<Constraint> rules(const KernelSpec& spec, const Arch& arch) {
  std::vector<Constraint> all = sm90_rules(spec, arch, accumulators);
  all.push_back({"flush",
                 {"flush_keys", "o_staging", "scheduler"},
                 [](const Config& c) -> std::optional<std::string> {
                   if (c.at("flush_keys") == 0 || c.at("o_staging") || c.at("scheduler") != 0)
                     return std::nullopt;
                   return "flush_keys needs o_staging 1, or scheduler 1 or 2: sums are flushed "
                          "where O is staged, or to the workspace of persistent blocks";
                 }});
  const bool whole = spec.fp8.v_layout == VLayout::kRows && spec.head_dim_v % 32 == 0;
  all.push_back({"inside",
                 {"transpose_inside", "kv_ring"},
                 [=](const Config& c) -> std::optional<std::string> {
                   if (!inside(c) || (whole && !c.at("kv_ring"))) return std::nullopt;
                   return "transpose_inside needs V in rows, a head_dim_v that is a multiple of "
                          "32, and kv_ring 0";
                 }});
  // Registers with which row_max 1 recovers an exact maximum without spills (ptxas 13.0).
  all.push_back({"row_max_recovery",
                 {"row_max", "block_n", "overlap"},
                 [=](const Config& c) -> std::optional<std::string> {
                   if (!c.at("row_max") || accumulators(spec, c) <= kLateAccumulators)
                     return std::nullopt;
                   return "row_max 1 leaves no registers for tiles of this size";
                 }});
  return all;
}

// Recovering an exact maximum with row_max 1 is free up to head dim 128, and without factors per
// block.
std::vector<int64_t> row_max_forms(const KernelSpec& spec) {
  const bool late = spec.fp8.accuracy == Accuracy::kFast && spec.fp8.scale_block_kv == 0 &&
                    std::max(spec.head_dim_qk, spec.head_dim_v) <= 128;
  return late ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0};
}

std::vector<Knob> knobs(const KernelSpec& spec) {
  const std::vector<int64_t> sections = !sm90_longest_first(spec) ? std::vector<int64_t>{0}
                                        : spec.mask == Mask::kNone
                                            ? std::vector<int64_t>{32, 0}
                                            : std::vector<int64_t>{32, 16, 8, 4};
  return sm90_knobs(
      spec, {{64, 96, 128, 160, 192, 224}, {0, 5}, sections},
      {{"row_max", row_max_forms(spec),
        "a larger row maximum is found by 0: a test in each step, 1: its probabilities afterwards"},
       {"flush_keys", flush_keys(spec),
        "keys after which the tensor cores' accumulator is flushed; 0: never"},
       {"transpose_inside",
        {0, 1},
        "V is transposed by 0: a preceding kernel, 1: idle warps in each tile"},
       {"early", {1, 0}, "kernels start while the previous kernel still runs"}});
}

std::optional<std::string> refused_dtypes(const KernelSpec& spec) {
  if (spec.dtype_q != Dtype::kE4m3)
    return fmt::format("dtype_q is {}; this template serves e4m3", dtype_name(spec.dtype_q));
  if (!is_8_bit(spec.dtype_kv))
    return fmt::format("dtype_kv is {}; this template serves e4m3 and e5m2",
                       dtype_name(spec.dtype_kv));
  if (spec.dtype_o != Dtype::kBf16 && spec.dtype_o != Dtype::kFp16)
    return fmt::format("dtype_o is {}; this template serves bf16 and fp16",
                       dtype_name(spec.dtype_o));
  return std::nullopt;
}

Config config_of(std::initializer_list<std::pair<const char*, int>> changes,
                 const KernelSpec& spec) {
  const bool causal = sm90_longest_first(spec);
  const int64_t row_max = row_max_forms(spec).front();
  Config c({{"block_m", 128},
            {"block_n", 128},
            {"ctas_per_sm", 1},
            {"stages", 2},
            {"kv_ring", 0},
            {"overlap", 1},
            {"ping_pong", row_max == 0 ? 1 : 0},
            {"scheduler", causal ? 2 : 1},
            {"l2_section_mb", causal ? 32 : 0},
            {"o_staging", 1},
            {"row_max", row_max},
            {"flush_keys", static_cast<int>(flush_keys(spec).front())},
            {"transpose_inside", 0},
            {"early", 1},
            {"kv_splits", 1}});
  for (const auto& [knob, value] : changes) c.set(knob, value);
  return c;
}

// Returns the configs that won somewhere on an H200 (table in
// templates/cuda/prefill_sm90_fp8/README.md), then two that fit any head dims.
std::vector<Config> proven_configs(const KernelSpec& spec) {
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  std::vector<Config> configs;
  const auto add = [&](std::initializer_list<std::pair<const char*, int>> changes) {
    configs.push_back(config_of(changes, spec));
  };
  if (widest <= 64) {
    add({{"block_m", 192}, {"block_n", 128}});
    add({{"block_m", 256}, {"block_n", 64}, {"ping_pong", 0}});
    add({{"block_n", 64}, {"ctas_per_sm", 2}, {"ping_pong", 0}});
    add({{"block_n", 192}});
    add({{"block_n", 64}, {"ctas_per_sm", 2}, {"overlap", 0}, {"ping_pong", 0}, {"row_max", 0}});
    add({{"block_m", 64}, {"block_n", 64}, {"ctas_per_sm", 3}, {"ping_pong", 0}});
  } else if (widest <= 128) {
    add({{"block_m", 192}, {"block_n", 96}});
    add({{"block_n", 128}});
    add({{"block_n", 128}, {"transpose_inside", 1}});
  } else {
    add({{"block_n", 128}, {"ping_pong", 0}});
    add({{"block_n", 128}, {"ping_pong", 0}, {"o_staging", 0}, {"transpose_inside", 1}});
    add({{"block_n", 64}, {"ping_pong", 0}});
  }
  add({{"block_m", 64}, {"block_n", 64}, {"scheduler", 0}, {"ping_pong", 0}});
  add({{"block_n", 64}, {"ping_pong", 0}});
  add({{"block_n", 64}, {"ping_pong", 0}, {"o_staging", 0}});
  return configs;
}

// True if flushed sums have no room where O would be staged.
bool flushes_to_workspace(const Config& config) {
  return config.at("flush_keys") != 0 && config.at("o_staging") == 0;
}

// Returns the number of tiles of keys in which V is transposed, per head.
int64_t key_tiles(const Shape& shape) {
  return (std::max<int64_t>(shape.seqlen_kv, 1) + kTransposeKeys - 1) / kTransposeKeys;
}

// Returns the step that writes V^T into `transposed`.
StepStructure transposing(const KernelSpec& spec, bool early, Workspace transposed) {
  const bool given = spec.fp8.v_layout == VLayout::kTransposed;
  const TransposeLayout layout = transpose_layout(spec.head_dim_v, given);
  const TensorMapPlan in_rows{Operand::kV, layout.row, kTransposeKeys, layout.row};
  const TensorMapPlan in_keys{Operand::kV, kTransposeKeys, spec.head_dim_v, kTransposeKeys};
  return {.entry = kTransposeEntry,
          .threads = kTransposeThreads,
          .shared_bytes = static_cast<unsigned>(layout.bytes),
          .early = early,
          .tensor_maps = {given ? in_keys : in_rows,
                          {transposed, kTransposeKeys, spec.head_dim_v, kTransposeKeys}}};
}

class PrefillSm90Fp8 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "prefill_sm90_fp8"; }
  std::string_view source_path() const override {
    return "cuda/prefill_sm90_fp8/prefill_sm90_fp8.cu";
  }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm90_fp8/prefill_sm90_fp8_knobs.cuh";
  }

  const Served& serves() const override { return serves_masks_and_8_bits(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return {knobs(spec), rules(spec, arch)};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    Config config = sm90_default(*this, spec, arch, shape, device, proven_configs(spec),
                                 sm90_fp8_predicted_clocks);
    if (!is_scored(spec)) return config;
    return with_room_for_scores(space(spec, arch), config, 64);
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    return sm90_resources(spec, arch, config);
  }

  bool steps_scores() const override { return true; }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, config));
    return {{"generated/wgmma.cuh",
             emit_fp8_wgmma_products({spec.dtype_kv, static_cast<int>(config.at("block_n")),
                                      spec.head_dim_qk, spec.head_dim_v, layout.row_qk,
                                      layout.row_v})}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override;
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override;

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return sm90_fp8_predicted_clocks(spec, config, shape, device);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = sm90_refusal(spec, arch)) return reason;
    if (auto reason = refused_dtypes(spec)) return reason;
    if (spec.fp8.scale_block_q % kWarpgroupRows != 0)
      return fmt::format("scale_block_q is {}; must be a multiple of {}, the rows of a warpgroup",
                         spec.fp8.scale_block_q, kWarpgroupRows);
    return std::nullopt;
  }
};

LaunchStructure PrefillSm90Fp8::structure(const KernelSpec& spec, const Config& config) const {
  const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, config));
  const int block_n = static_cast<int>(config.at("block_n"));
  LaunchStructure all = sm90_structure(spec, config);
  if (flushes_to_workspace(config)) all.workspace.push_back({.name = "flushed_sums"});
  const Workspace transposed{all.workspace.size()};
  StepStructure& main = all.steps[0];
  main.early = config.at("early") != 0;
  main.tensor_maps = {{Operand::kQ, layout.row_qk, kWarpgroupRows, layout.row_qk},
                      {Operand::kK, layout.row_qk, block_n, layout.row_qk},
                      inside(config)
                          ? TensorMapPlan{Operand::kV, layout.row_given, block_n, layout.row_given}
                          : TensorMapPlan{transposed, layout.row_v, spec.head_dim_v, layout.row_v},
                      {Operand::kO, kPanelColumns, kWarpgroupRows, kPanelRowBytes}};
  if (!inside(config)) {
    all.workspace.push_back({.name = "v_transposed", .dtype = spec.dtype_kv});
    all.steps.insert(all.steps.begin(), transposing(spec, main.early, transposed));
    all.main_step = 1;
  }
  add_block_map(spec, &all);
  return all;
}

LaunchSizes PrefillSm90Fp8::sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                                  const DeviceFacts& device) const {
  LaunchSizes sizes = sm90_sizes(spec, config, shape, device);
  if (flushes_to_workspace(config))
    sizes.workspace.push_back({.columns = prefill_sm90_flushed_bytes(spec.head_dim_v) / 4,
                               .rows = config.at("block_m") / kWarpgroupRows,
                               .heads = sizes.steps[0].grid_x});
  if (!inside(config)) {
    const int64_t tiles = key_tiles(shape);
    sizes.workspace.push_back({.columns = tiles * kTransposeKeys,
                               .rows = spec.head_dim_v,
                               .heads = shape.num_heads_kv,
                               .batch = shape.batch});
    sizes.steps.insert(sizes.steps.begin(),
                       {.grid_x = grid_extent(tiles * shape.batch * shape.num_heads_kv)});
  }
  add_block_map(spec, shape, sm90_map_shape(config, shape), &sizes);
  return sizes;
}

}  // namespace

const KernelTemplate& prefill_sm90_fp8() {
  static const PrefillSm90Fp8 instance;
  return instance;
}

}  // namespace attune
