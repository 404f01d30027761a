// SPDX-License-Identifier: Apache-2.0
// prefill_sm90_fp8: TMA + wgmma attention forward with 8-bit operands for sm_90a (Hopper). The
// kernel is templates/cuda/prefill_sm90_fp8/prefill_sm90_fp8.cu. LOG.md beside it has the
// numbers behind the choices.
//
// How a config is chosen for a problem, in the order of this file:
// 1. refused() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs: the values of knobs(), and rules(). Most of both are those
//    of prefill_sm90 (sm90/rules.cpp).
// 3. candidates() returns configs that won on an H200.
// 4. default_config() gives them to sm90_fastest() (sm90/cost.cpp), which returns the legal one
//    with the fewest predicted_clocks(). Score programs then get narrower steps
//    (prefill_parts.hpp).
// 5. structure() and sizes() return the launch of a config; most of it is in sm90/launch.cpp.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/families/limits.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/families/prefill/sm90/launch.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/families/served.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "templates/shared/layouts/prefill_sm90_fp8_layout.h"

namespace attune {
namespace {

constexpr int kLateAccumulators = 164;  // with row_max 1
constexpr const char* kTransposeEntry = "attune_transpose_v";

// Returns why the family does not serve the spec; nullopt if it does.
std::optional<std::string> refused(const KernelSpec& spec, const Arch& arch) {
  if (auto reason = sm90_refusal(spec, arch)) return reason;
  if (spec.dtype_q != Dtype::kE4m3)
    return fmt::format("dtype_q is {}; this template serves e4m3", dtype_name(spec.dtype_q));
  if (!is_8_bit(spec.dtype_kv))
    return fmt::format("dtype_kv is {}; this template serves e4m3 and e5m2",
                       dtype_name(spec.dtype_kv));
  if (spec.dtype_o != Dtype::kBf16 && spec.dtype_o != Dtype::kFp16)
    return fmt::format("dtype_o is {}; this template serves bf16 and fp16",
                       dtype_name(spec.dtype_o));
  if (spec.fp8.scale_block_q % kWarpgroupRows != 0)
    return fmt::format("scale_block_q is {}; must be a multiple of {}, the rows of a warpgroup",
                       spec.fp8.scale_block_q, kWarpgroupRows);
  return std::nullopt;
}

// Returns the registers that the accumulators of a consumer thread take.
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
        "V is transposed by 0: a preceding kernel, 1: idle warps in each tile"}});
}

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

Config config_of(std::initializer_list<std::pair<const char*, int>> changes,
                 const KernelSpec& spec) {
  const bool causal = sm90_longest_first(spec);
  const int64_t row_max = row_max_forms(spec).front();
  Config c({{"block_m", 128},
            {"block_n", 128},
            {"blocks_per_sm", 1},
            {"kv_slots", 2},
            {"kv_ring", 0},
            {"overlap", 1},
            {"ping_pong", row_max == 0 ? 1 : 0},
            {"scheduler", causal ? 2 : 1},
            {"l2_section_mb", causal ? 32 : 0},
            {"o_staging", 1},
            {"row_max", row_max},
            {"flush_keys", static_cast<int>(flush_keys(spec).front())},
            {"transpose_inside", 0},
            {"kv_splits", 1}});
  for (const auto& [knob, value] : changes) c.set(knob, value);
  return c;
}

// Returns the configs that won somewhere on an H200 (table in
// templates/cuda/prefill_sm90_fp8/LOG.md), then two that fit any head dims.
std::vector<Config> candidates(const KernelSpec& spec) {
  const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
  std::vector<Config> configs;
  const auto add = [&](std::initializer_list<std::pair<const char*, int>> changes) {
    configs.push_back(config_of(changes, spec));
  };
  if (widest <= 64) {
    add({{"block_m", 192}, {"block_n", 128}});
    add({{"block_m", 256}, {"block_n", 64}, {"ping_pong", 0}});
    add({{"block_n", 64}, {"blocks_per_sm", 2}, {"ping_pong", 0}});
    add({{"block_n", 192}});
    add({{"block_n", 64}, {"blocks_per_sm", 2}, {"overlap", 0}, {"ping_pong", 0}, {"row_max", 0}});
    add({{"block_m", 64}, {"block_n", 64}, {"blocks_per_sm", 3}, {"ping_pong", 0}});
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

// Per multiprocessor and clock (sm_90).
constexpr double kMmaFlops = 8192;  // dense 8-bit
constexpr double kExponentials = 16;

// Returns the cost factor of a step besides its products and exponentials.
double tile_factor(const KernelSpec& spec, const Config& c) {
  const int64_t warpgroups = c.at("block_m") / kWarpgroupRows;
  const int64_t resident = warpgroups * c.at("blocks_per_sm");
  double factor = 1 + 9.0 / static_cast<double>(c.at("block_n"));
  if (resident == 1) factor *= 1.6;
  if (resident == 2) factor *= spec.head_dim_v <= 64 ? 1.2 : spec.head_dim_v <= 128 ? 1.13 : 1.05;
  if (resident == 4)
    factor *= c.at("blocks_per_sm") == 1 ? (c.at("row_max") ? 0.97 : 0.98)
                                         : (c.at("row_max") ? 0.98 : 1.03);
  if (c.at("block_m") == 64) factor *= spec.head_dim_v > 64 ? 1.2 : 1.12;
  if (!c.at("overlap")) factor *= resident <= 3 ? 1.25 : 1.08;
  return factor;
}

// Returns the cost factor if idle warps transpose V: they take shared memory bandwidth from wgmma.
double inside_factor(const KernelSpec& spec) { return spec.head_dim_v <= 128 ? 1.1 : 1.25; }

// Returns the clocks of the preceding kernel, which writes V^T: it is bound by memory.
double transposing_clocks(const KernelSpec& spec, const Shape& shape, const DeviceFacts& device) {
  constexpr double kClocksPerByte = 6.8e-4;           // on an H200,
  constexpr double kMemoryBytesPerSecond = 4.917e12;  // which has this rate
  const double slower =
      device.memory_bytes_per_s > 0 ? kMemoryBytesPerSecond / device.memory_bytes_per_s : 1;
  return kClocksPerByte * slower *
         static_cast<double>(shape.batch * shape.num_heads_kv * shape.seqlen_kv * spec.head_dim_v);
}

// Returns a factor for choices that matter little compared with the tile; usual losers rank last.
double variant_penalty(const KernelSpec& spec, const Shape& shape, const Config& c,
                       const DeviceFacts& device) {
  const bool masked = spec.mask != Mask::kNone;
  double factor = 1;
  if (c.at("kv_slots") > 2) factor *= 1.04;
  if (!c.at("o_staging")) factor *= 1.01;
  if (c.at("kv_ring")) factor *= 1.04;
  factor *= sm90_section_factor(spec, c, shape, device);
  if (c.at("scheduler") == 0 && c.at("kv_splits") == 1) factor *= 1.02;
  if (c.at("scheduler") == (masked ? 1 : 2)) factor *= 1.02;
  const bool turns_win = spec.head_dim_v <= 128 && c.at("row_max") == 0 && c.at("block_m") <= 192;
  if (c.at("block_m") > 64 && c.at("overlap") && (c.at("ping_pong") != 0) != turns_win)
    factor *= 1.02;
  if (c.at("row_max")) factor *= 0.95;
  const int block_n = static_cast<int>(c.at("block_n"));
  const int64_t flushed = c.at("flush_keys");
  if (flushed > 0 && shape.seqlen_kv > flushed)
    factor *= 1 + 0.45 * block_n / static_cast<double>(flushed);
  const int groups = block_n / columns_of_factor(block_n, spec.fp8.scale_block_kv);
  if (groups > 1) factor *= 1.1 + 0.01 * groups;
  return factor;
}

// Returns the clocks of a launch: those of a step with 8-bit operands, and prefill_sm90's model of
// tiles and multiprocessors. The model is explained in templates/cuda/prefill_sm90_fp8/LOG.md.
double predicted_clocks(const KernelSpec& spec, const Config& config, const Shape& shape,
                        const DeviceFacts& device) {
  const double elements = static_cast<double>(config.at("block_m") * config.at("block_n"));
  const double mma = elements * 2 * (spec.head_dim_qk + spec.head_dim_v) / kMmaFlops;
  const double exponentials = elements / kExponentials;
  const double busy = std::pow(std::pow(mma, kOverlapPower) + std::pow(exponentials, kOverlapPower),
                               1 / kOverlapPower);
  const double step = busy * tile_factor(spec, config) *
                      (inside(config) ? inside_factor(spec) : 1) *
                      static_cast<double>(config.at("blocks_per_sm")) *
                      variant_penalty(spec, shape, config, device);
  return sm90_launch_clocks(spec, config, shape, device, step) +
         (inside(config) ? 0 : transposing_clocks(spec, shape, device));
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
StepStructure transposing(const KernelSpec& spec, Workspace transposed) {
  const bool given = spec.fp8.v_layout == VLayout::kTransposed;
  const TransposeLayout layout = transpose_layout(spec.head_dim_v, given);
  const TensorMapPlan in_rows{Operand::kV, layout.row, kTransposeKeys, layout.row};
  const TensorMapPlan in_keys{Operand::kV, kTransposeKeys, spec.head_dim_v, kTransposeKeys};
  return {.entry = kTransposeEntry,
          .threads = kTransposeThreads,
          .shared_bytes = static_cast<unsigned>(layout.bytes),
          .early = true,
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
  int revision() const override { return 2; }  // 2: blocks that split keys are clusters

  const Served& serves() const override { return serves_masks_and_8_bits(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return {knobs(spec), rules(spec, arch)};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const SearchSpace legal = space(spec, arch);
    const Config config =
        sm90_fastest(name(), legal, candidates(spec), spec, shape, device, predicted_clocks);
    return is_scored(spec) ? with_room_for_scores(legal, config, 64) : config;
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
    return predicted_clocks(spec, config, shape, device);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return refused(spec, arch);
  }
};

LaunchStructure PrefillSm90Fp8::structure(const KernelSpec& spec, const Config& config) const {
  const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, config));
  const int block_n = static_cast<int>(config.at("block_n"));
  LaunchStructure all = sm90_structure(spec, config);
  if (flushes_to_workspace(config)) all.workspace.push_back({.name = "flushed_sums"});
  const Workspace transposed{all.workspace.size()};
  StepStructure& main = all.steps[0];
  main.early = true;
  main.tensor_maps = {{Operand::kQ, layout.row_qk, kWarpgroupRows, layout.row_qk},
                      {Operand::kK, layout.row_qk, block_n, layout.row_qk},
                      inside(config)
                          ? TensorMapPlan{Operand::kV, layout.row_given, block_n, layout.row_given}
                          : TensorMapPlan{transposed, layout.row_v, spec.head_dim_v, layout.row_v},
                      {Operand::kO, kPanelColumns, kWarpgroupRows, kPanelRowBytes}};
  if (!inside(config)) {
    all.workspace.push_back({.name = "v_transposed", .dtype = spec.dtype_kv});
    all.steps.insert(all.steps.begin(), transposing(spec, transposed));
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
