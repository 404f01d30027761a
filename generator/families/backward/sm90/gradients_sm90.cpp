// SPDX-License-Identifier: Apache-2.0
// See gradients_sm90.hpp.
#include "generator/families/backward/sm90/gradients_sm90.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/error.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_prepare_layout.h"

namespace attune {
namespace {

constexpr int kMaxHeadDim = 256;
// Kernels of whole groups of heads, whose tiles are long, end earlier than predicted. So parts of
// heads must gain this much.
constexpr double kPartsMargin = 1.1;

Served with_masks(std::set<std::string> features) {
  features.insert({"mask", "window", "deterministic"});
  return {Op::kAttentionBackward, std::move(features)};
}

bool has_narrow_window(const KernelSpec& spec) {
  constexpr int kMostKeys = 256;
  if (spec.window_left < 0 || (spec.mask == Mask::kNone && spec.window_right < 0)) return false;
  return spec.window_left + std::max<int64_t>(spec.window_right, 0) < kMostKeys;
}

// True if a config breaks the rule of this name; the knobs of other rules may be illegal.
bool breaks(const SearchSpace& space, std::string_view name, const Config& config) {
  return std::any_of(
      space.constraints().begin(), space.constraints().end(),
      [&](const Constraint& rule) { return rule.name == name && rule.broken(config); });
}

bool is_of_rows(std::string_view knob) {
  return knob == "block_m" || knob == "block_n" || knob == "k_slots" || knob == "v_slots";
}

bool is_persistent(const BackwardKernel& kernel, const KernelSpec& spec) {
  if (kernel.makes == BackwardMakes::kAll) return kernel.draws_tiles;
  if (kernel.stored_bytes == 0 && has_narrow_window(spec)) return true;
  return kernel.of_rows() && spec.mask == Mask::kNone && spec.window_left < 0 &&
         spec.window_right < 0;
}

// Returns the tensor maps of the kernel of dQ, and of kernels of keys. Operands that stay are
// loaded by 64 rows; those that stream, by steps.
class Maps {
 public:
  Maps(const BackwardKernel& kernel, const KernelSpec& spec) : kernel_(kernel), spec_(spec) {}

  std::vector<TensorMapPlan> all() const {
    if (kernel_.of_rows())
      return {stays(Operand::kQ), streams(Operand::kK), streams(Operand::kV), stays(Operand::kDout),
              leaves(Operand::kDq)};
    if (kernel_.makes == BackwardMakes::kBand)
      return {streams(Operand::kQ),           streams(Operand::kK),   streams(Operand::kV),
              leaves(Operand::kDq),           leaves(Operand::kDk),   leaves(Operand::kDv),
              box(Operand::kO, kBandSumRows), streams(Operand::kDout)};
    const bool k = kernel_.makes != BackwardMakes::kDv && kernel_.makes != BackwardMakes::kStoredDv;
    if (kernel_.of_stored())
      return {streams(k ? Operand::kQ : Operand::kDout), leaves(k ? Operand::kDk : Operand::kDv)};
    std::vector<TensorMapPlan> maps{streams(Operand::kQ), stays(Operand::kK)};
    if (k) maps.push_back(stays(Operand::kV));
    if (k) maps.push_back(leaves(Operand::kDk));
    if (kernel_.makes != BackwardMakes::kDk) maps.push_back(leaves(Operand::kDv));
    maps.push_back(streams(Operand::kDout));
    return maps;
  }

 private:
  static TensorMapPlan box(Operand operand, int rows) {
    return {operand, kPanelColumns, rows, kPanelRowBytes};
  }
  static TensorMapPlan stays(Operand operand) { return box(operand, kWarpgroupRows); }
  TensorMapPlan streams(Operand operand) const { return box(operand, kernel_.tile.step_rows); }
  // Sums are fp32: half as many columns in the same bytes.
  TensorMapPlan leaves(Operand operand) const {
    TensorMapPlan map = stays(operand);
    if (spec_.backward.accumulate) map.box_columns /= 2;
    return map;
  }

  const BackwardKernel& kernel_;
  const KernelSpec& spec_;
};

}  // namespace

GradientsSm90::GradientsSm90(std::string name, const std::string& folder,
                             std::set<std::string> features)
    : name_(std::move(name)),
      source_path_(fmt::format("cuda/backward_sm90/{}/{}.cu", folder, name_)),
      knobs_path_(fmt::format("cuda/backward_sm90/{}/{}_knobs.cuh", folder, name_)),
      served_(with_masks(std::move(features))) {}

Resources GradientsSm90::resources(const KernelSpec& spec, const Arch& arch,
                                   const Config& config) const {
  Resources r{.threads = kPrepareThreads, .max_registers = 0};
  for (const BackwardKernel& kernel : kernels(spec, config)) {
    const PrefillSm90Registers registers = backward_registers(kernel);
    r.shared_bytes = std::max(r.shared_bytes, backward_shared_bytes(kernel));
    r.max_registers = std::max(r.max_registers,
                               registers.moved ? registers.launch : arch.max_registers_per_thread);
  }
  return r;
}

double GradientsSm90::predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                                     const Shape& shape, const DeviceFacts& device) const {
  double clocks = sums_clocks(spec, sums(config), shape, device);
  for (const BackwardKernel& kernel : kernels(spec, config))
    clocks += backward_clocks(kernel, spec, shape, device);
  return splits_heads(config) ? kPartsMargin * clocks : clocks;
}

Config GradientsSm90::cheapest_of_sides(const KernelSpec& spec, const Arch& arch,
                                        const Shape& shape, const DeviceFacts& device) const {
  const SearchSpace all = space(spec, arch);
  const Config first = all.first_values();
  std::vector<std::string_view> of_rows, others;
  for (const Knob& knob : all.knobs())
    (is_of_rows(knob.name) ? of_rows : others).push_back(knob.name);
  const std::optional<Config> rows = cheapest(
      all.knobs(), first, of_rows, [&](const Config& c) { return !breaks(all, "rows", c); },
      [&](const Config& c) {
        return backward_clocks(kernels(spec, c).front(), spec, shape, device);
      });
  const std::optional<Config> best = cheapest(
      all.knobs(), rows.value_or(first), others, [&](const Config& c) { return !all.broken(c); },
      [&](const Config& c) { return predicted_cost(spec, arch, c, shape, device); });
  if (!best) throw Error(ErrorCode::kInternal, name_ + " has no legal config");
  return *best;
}

std::optional<std::string> GradientsSm90::refusal(const KernelSpec& spec, const Arch& arch) const {
  if (auto reason = sm90_refusal(spec, arch)) return reason;
  for (const auto& [name, value] :
       {std::pair{"head_dim_qk", spec.head_dim_qk}, {"head_dim_v", spec.head_dim_v}})
    if (value > kMaxHeadDim)
      return fmt::format("{} is {}; must be at most {}", name, value, kMaxHeadDim);
  if (spec.dtype_q != Dtype::kBf16 && spec.dtype_q != Dtype::kFp16)
    return fmt::format("dtype_q is {}; this template serves bf16 and fp16",
                       dtype_name(spec.dtype_q));
  return family_refusal(spec, arch);
}

Broken broken_kernels(const std::vector<BackwardKernel>& kernels, const KernelSpec& spec,
                      const Arch& arch) {
  for (const BackwardKernel& kernel : kernels)
    if (Broken broken = broken_kernel(kernel, spec, arch)) return broken;
  return std::nullopt;
}

std::vector<Constant> gradient_constants() {
  return {{"int", "kL2SectionMb", std::to_string(kL2SectionMb)}};
}

StepStructure gradient_step(const BackwardKernel& kernel, const KernelSpec& spec,
                            const std::string& entry) {
  const int warpgroups = kernel.tile.stay_rows / kWarpgroupRows + kernel.dq_warpgroup + 1;
  return {.entry = entry,
          .threads = static_cast<unsigned>(warpgroups) * kWarpgroupThreads,
          .shared_bytes = static_cast<unsigned>(backward_shared_bytes(kernel)),
          .early = true,
          .tensor_maps = Maps(kernel, spec).all()};
}

StepSize gradient_size(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device) {
  const int tiles =
      tile_count(backward_tiles(kernel, shape) * head_split(kernel, spec, shape, device).parts);
  const int blocks = is_persistent(kernel, spec) ? std::min(tiles, device.sm_count) : tiles;
  return {.grid_x = grid_extent(blocks), .num_tiles = tiles};
}

StepStructure prepare_step() {
  return {.entry = "attune_prepare",
          .parts = {ArgumentPart::kBase, ArgumentPart::kGradients},
          .threads = kPrepareThreads,
          .early = true};
}

StepSize prepare_size(const KernelSpec& spec, const Shape& shape, int64_t padded_rows) {
  return {.grid_x = grid_extent(shape.num_heads_q * shape.batch *
                                backward_prepare_blocks(padded_rows, spec.head_dim_v))};
}

TensorExtents sums_extents(const Shape& shape, int64_t padded_rows) {
  return {.columns = padded_rows, .rows = 2, .heads = shape.num_heads_q, .batch = shape.batch};
}

void add_dropout(const KernelSpec& spec, LaunchStructure* structure) {
  if (spec.dropout == 0) return;
  for (StepStructure& step : structure->steps)
    step.parts.insert(step.parts.begin() + 1, ArgumentPart::kDropout);
}

}  // namespace attune
