// SPDX-License-Identifier: Apache-2.0
// backward_sm90: gradients of attention for sm_90a (Hopper). One kernel makes dQ, another dK and
// dV. Source: templates/cuda/backward_sm90/backward_sm90.cu. The problems that backward_sm90
// serves, its defaults, and its launch.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "generator/core/system/error.hpp"
#include "generator/families/backward/backward_sm90_cost.hpp"
#include "generator/families/backward/backward_sm90_default.hpp"
#include "generator/families/backward/backward_sm90_space.hpp"
#include "generator/families/backward/made_gradients.hpp"
#include "generator/families/prefill/prefill_sm90_rules.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_prepare_layout.h"
#include "templates/shared/layouts/backward_stored_layout.h"

namespace attune {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kL2SectionMb = 32;

// True if L2 and delta are in the workspace. With fold_sums a kernel of dQ alone computes them
// itself, and so does a band kernel.
bool has_sums(const KernelSpec& spec, const Config& config) {
  return !walks_band(config) && (makes_keys(spec) || config.at("fold_sums") == 0);
}

bool has_narrow_window(const KernelSpec& spec) {
  constexpr int kMostKeys = 256;
  if (spec.window_left < 0 || (spec.mask == Mask::kNone && spec.window_right < 0)) return false;
  return spec.window_left + std::max<int64_t>(spec.window_right, 0) < kMostKeys;
}

class BackwardSm90 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "backward_sm90"; }
  std::string_view source_path() const override { return "cuda/backward_sm90/backward_sm90.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/backward_sm90/backward_sm90_knobs.cuh";
  }

  const Served& serves() const override {
    static const Served served{
        Op::kAttentionBackward,
        {"mask", "window", "gradients", "dropout", "accumulate", "deterministic"}};
    return served;
  }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return backward_sm90_space(spec, arch);
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return backward_sm90_default(space(spec, arch), spec, shape, device);
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    Resources r{.threads = kPrepareThreads, .max_registers = 0};
    for (const BackwardKernel& kernel : backward_kernels(spec, config)) {
      const PrefillSm90Registers registers = backward_registers(kernel);
      r.shared_bytes = std::max(r.shared_bytes, backward_shared_bytes(kernel));
      r.max_registers = std::max(
          r.max_registers, registers.moved ? registers.launch : arch.max_registers_per_thread);
    }
    return r;
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    const bool split = config.at("split_kv") != 0;
    const auto yes = [](const char* name, bool value) {
      return Constant{"bool", name, value ? "true" : "false"};
    };
    std::vector<Constant> all{yes("kHasKeys", makes_keys(spec)),
                              yes("kKeysMakeK", makes(spec, Gradients::kK)),
                              yes("kKeysMakeV", makes(spec, Gradients::kV) && !split),
                              {"int", "kL2SectionMb", std::to_string(kL2SectionMb)}};
    if (!makes_all_at_once(config) && !stores_ds(config)) all.push_back(yes("kTwoKernels", true));
    if (makes_halves(spec, config)) all.push_back(yes("kStepsInHalves", true));
    if (has_dq_warpgroup(spec, config)) all.push_back(yes("kDqWarpgroup", true));
    return all;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    const auto knob = [&](const char* name) { return static_cast<int>(config.at(name)); };
    const int qk = spec.head_dim_qk, v = spec.head_dim_v;
    const int keys = knob("block_n"), rows = knob("key_block_m");
    std::vector<WgmmaProduct> products;
    const auto add = [&](std::string_view function, WgmmaA a, int n, int k) {
      products.push_back({function, a, n, k});
    };
    if (transposes_dq(config))
      add("wgmma_keys_ds", WgmmaA::kSharedColumns, rows, kWarpgroupRows);
    else if (walks_band(config) || has_dq_warpgroup(spec, config))
      add("wgmma_ds_keys", WgmmaA::kSharedRows, qk, kWarpgroupRows);
    else if (fuses_dq(config))
      add("wgmma_ds_keys", WgmmaA::kSharedRows, backward_fused_columns(rows, qk), kWarpgroupRows);
    if (makes_halves(spec, config)) {
      products.push_back({"wgmma_v_dout_half", WgmmaA::kShared, rows / 2, v, rows});
      products.push_back({"wgmma_p_dout_half", WgmmaA::kRegisters, v, rows / 2, rows});
      products.push_back({"wgmma_ds_q_half", WgmmaA::kRegisters, qk, rows / 2, rows});
    }
    if (makes(spec, Gradients::kQ) && !makes_all_at_once(config)) {
      add("wgmma_q_k", WgmmaA::kShared, keys, qk);
      add("wgmma_dout_v", WgmmaA::kShared, keys, v);
      add("wgmma_ds_k", WgmmaA::kRegisters, qk, keys);
    }
    const auto add_stored = [&](std::string_view function, int columns) {
      products.push_back({.function = function,
                          .a = WgmmaA::kSharedBothColumns,
                          .n = columns,
                          .k = kWarpgroupRows,
                          .row_a = kStoredRowBytes});
    };
    if (stores_ds(config)) {
      add_stored("wgmma_stored_q", qk);
      if (stores_p(spec, config)) add_stored("wgmma_stored_dout", v);
      return {{"generated/wgmma.cuh", emit_wgmma_products(spec.dtype_q, products)}};
    }
    if (makes_keys(spec)) add("wgmma_k_q", WgmmaA::kShared, rows, qk);
    if (makes(spec, Gradients::kK)) {
      add("wgmma_v_dout", WgmmaA::kShared, rows, v);
      add("wgmma_ds_q", WgmmaA::kRegisters, qk, rows);
    }
    if (makes(spec, Gradients::kV)) add("wgmma_p_dout", WgmmaA::kRegisters, v, rows);
    return {{"generated/wgmma.cuh", emit_wgmma_products(spec.dtype_q, products)}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    const bool folded = config.at("fold_sums") != 0;
    LaunchStructure all{.steps = {}, .main_step = folded ? 0u : 1u};
    if (has_sums(spec, config)) all.workspace = {{.name = "row_sums"}};
    if (!folded)
      all.steps.push_back({.entry = "attune_prepare",
                           .parts = {ArgumentPart::kBase, ArgumentPart::kGradients},
                           .threads = kPrepareThreads,
                           .early = true});
    for (const BackwardKernel& kernel : backward_kernels(spec, config))
      all.steps.push_back(step_of(kernel, spec, config));
    if (stores_ds(config)) all.workspace.push_back({.name = "ds", .dtype = spec.dtype_q});
    if (fuses_dq(config)) {
      all.workspace.push_back({.name = "dq", .alignment = 256});
      all.workspace.push_back({.name = "turns"});
      all.steps.push_back({.entry = "attune_round",
                           .parts = {ArgumentPart::kBase, ArgumentPart::kGradients},
                           .threads = 2 * kWarpgroupThreads,
                           .early = true});
    }
    if (spec.dropout > 0)  // after kBase
      for (StepStructure& step : all.steps)
        step.parts.insert(step.parts.begin() + 1, ArgumentPart::kDropout);
    if (stores_ds(config))
      all.rounds = {all.main_step, all.main_step + backward_kernels(spec, config).size()};
    for (size_t i = all.rounds.begin; i < all.rounds.end; ++i)
      all.steps[i].parts.insert(all.steps[i].parts.begin() + 1, ArgumentPart::kRound);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const auto knob = [&](const char* name) { return static_cast<int>(config.at(name)); };
    const int64_t rows = backward_sm90_rows(shape.seqlen_q, knob("block_m"), knob("key_block_m"));
    const int64_t heads = shape.num_heads_q * shape.batch;
    LaunchSizes sizes{.steps = {}, .workspace = {}};
    if (has_sums(spec, config))
      sizes.workspace = {
          {.columns = rows, .rows = 2, .heads = shape.num_heads_q, .batch = shape.batch}};
    if (config.at("fold_sums") == 0)
      sizes.steps.push_back(
          {.grid_x = grid_extent(heads * backward_prepare_blocks(rows, spec.head_dim_v))});
    Shape round = shape;  // the shape for which the multiplying kernels are launched
    if (stores_ds(config)) {
      sizes.rounds = backward_rounds(spec, config, shape);
      sizes.workspace.push_back(backward_stored_extents(spec, config, shape));
      round.batch = 1;
      round.num_heads_kv = sizes.rounds.of_round;
      round.num_heads_q = round.num_heads_kv * spec.gqa_ratio;
    }
    if (walks_band(config)) {
      if (const auto reason = backward_unfit(spec, config, shape))  // explicitly requested
        throw Error(ErrorCode::kUnsupported, *reason);
      const int places = tile_count(backward_places(spec, shape));
      sizes.steps.push_back({.grid_x = grid_extent(backward_band_blocks(places, device.sm_count)),
                             .num_tiles = places});
      return sizes;
    }
    for (const BackwardKernel& kernel : backward_kernels(spec, config)) {
      const int tiles = tile_count(backward_tiles(kernel, round));
      sizes.steps.push_back(
          {.grid_x =
               grid_extent(stays(kernel, spec, config) ? std::min(tiles, device.sm_count) : tiles),
           .num_tiles = tiles});
    }
    if (fuses_dq(config)) {
      const int64_t step = knob("key_block_m"), blocks = (shape.seqlen_q + step - 1) / step;
      const int64_t words = config.at("ordered") != 0 ? 0 : kClaimWords;
      sizes.workspace.push_back({.columns = step * spec.head_dim_qk + words,
                                 .rows = blocks,
                                 .heads = shape.num_heads_q,
                                 .batch = shape.batch});
      // Counters of blocks, and one of tiles
      sizes.workspace.push_back({.columns = heads * blocks + 1});
      sizes.steps.push_back({.grid_x = grid_extent(heads * blocks)});
    }
    return sizes;
  }

  std::optional<std::string> unfit(const KernelSpec& spec, const Config& config,
                                   const Shape& shape) const override {
    return backward_unfit(spec, config, shape);
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return backward_cost(spec, config, shape, device);
  }

 private:
  // True if blocks are persistent. Without a mask, the kernel of rows gains by that. Tiles under a
  // mask differ in length, so the device should hand them to blocks as others end. Kernels of keys
  // lose by persistence. Tiles of a narrow window have two or three steps each, so the start of a
  // block counts. Timings: templates/cuda/backward_sm90/README.md.
  static bool stays(const BackwardKernel& kernel, const KernelSpec& spec, const Config& config) {
    if (kernel.makes == BackwardMakes::kAll) return config.at("draw_tiles") != 0;
    if (kernel.stored_bytes == 0 && has_narrow_window(spec)) return true;
    return kernel.of_rows() && spec.mask == Mask::kNone && spec.window_left < 0 &&
           spec.window_right < 0;
  }

  static StepStructure step_of(const BackwardKernel& kernel, const KernelSpec& spec,
                               const Config& config) {
    const auto box = [](Operand operand, int rows) {
      return TensorMapPlan{operand, kPanelColumns, rows, kPanelRowBytes};
    };
    const auto stays = [&](Operand operand) { return box(operand, kWarpgroupRows); };
    // Sums are fp32: half as many columns in the same bytes.
    const auto leaves = [&](Operand operand) {
      TensorMapPlan map = stays(operand);
      if (spec.backward.accumulate) map.box_columns /= 2;
      return map;
    };
    const auto streams = [&](Operand operand) { return box(operand, kernel.tile.step_rows); };
    StepStructure step{.threads = static_cast<unsigned>(kernel.tile.stay_rows / kWarpgroupRows +
                                                        kernel.dq_warpgroup + 1) *
                                  kWarpgroupThreads,
                       .shared_bytes = static_cast<unsigned>(backward_shared_bytes(kernel)),
                       .early = true};
    if (config.at("fold_sums") != 0 && (kernel.of_rows() || walks_band(config)))
      step.parts.push_back(ArgumentPart::kGradients);
    if (kernel.of_rows()) {
      step.tensor_maps = {stays(Operand::kQ), streams(Operand::kK), streams(Operand::kV),
                          stays(Operand::kDout), leaves(Operand::kDq)};
      return step;
    }
    if (kernel.makes == BackwardMakes::kBand) {
      step.tensor_maps = {streams(Operand::kQ),           streams(Operand::kK),
                          streams(Operand::kV),           leaves(Operand::kDq),
                          leaves(Operand::kDk),           leaves(Operand::kDv),
                          box(Operand::kO, kBandSumRows), streams(Operand::kDout)};
      return step;
    }
    if (kernel.of_stored()) {
      const bool k = kernel.makes == BackwardMakes::kStoredDk;
      step.entry = k ? "attune_keys" : "attune_values";
      step.tensor_maps = {streams(k ? Operand::kQ : Operand::kDout),
                          leaves(k ? Operand::kDk : Operand::kDv)};
      return step;
    }
    const bool k = kernel.makes != BackwardMakes::kDv, v = kernel.makes != BackwardMakes::kDk;
    step.entry = kernel.makes == BackwardMakes::kAll ? "attune_kernel"
                 : !k && config.at("split_kv") != 0  ? "attune_values"
                                                     : "attune_keys";
    step.tensor_maps = {streams(Operand::kQ), stays(Operand::kK)};
    if (k) step.tensor_maps.push_back(stays(Operand::kV));
    if (k) step.tensor_maps.push_back(leaves(Operand::kDk));
    if (v) step.tensor_maps.push_back(leaves(Operand::kDv));
    step.tensor_maps.push_back(streams(Operand::kDout));
    return step;
  }

  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = sm90_refusal(spec, arch)) return reason;
    for (const auto& [name, value] :
         {std::pair{"head_dim_qk", spec.head_dim_qk}, {"head_dim_v", spec.head_dim_v}})
      if (value > kMaxHeadDim)
        return fmt::format("{} is {}; must be at most {}", name, value, kMaxHeadDim);
    if (spec.dtype_q != Dtype::kBf16 && spec.dtype_q != Dtype::kFp16)
      return fmt::format("dtype_q is {}; this template serves bf16 and fp16",
                         dtype_name(spec.dtype_q));
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& backward_sm90() {
  static const BackwardSm90 instance;
  return instance;
}

}  // namespace attune
