// SPDX-License-Identifier: Apache-2.0
// backward_sm80: gradients of attention with mma.sync for sm_80 and later, and for fp16 on sm_75.
// One kernel makes dQ, another dK and dV. Source: templates/cuda/backward_sm80/backward_sm80.cu.
// The problems that backward_sm80 serves, its knobs and their rules, and its launch.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "generator/core/system/error.hpp"
#include "generator/families/backward/backward_sm80_cost.hpp"
#include "generator/families/backward/gradient_steps.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/layouts/backward_prepare_layout.h"

namespace attune {
namespace {

// Registers for addresses, fragments in flight and row statistics, besides accumulators, as seen in
// compiled kernels; then registers for variables and loads of score programs.
constexpr int kOtherRegisters = 56;
constexpr int kRegistersOfPrograms = 16;
// Registers that defaults leave unused, since they must not spill on any arch.
constexpr int kSpare = 16;
constexpr int kSpareOfBlackwell = 8;  // ptxas 13.0 needs more for Blackwell
constexpr int kSpareOfDropout = 8;
constexpr int kSpareOfElements = 48;  // for programs that read several elements per score

using Broken = std::optional<std::string>;

// Knob values that the two kernels share.
struct Sides {
  std::vector<int64_t> stay_rows, warps, slots;
};
Sides sides(const Arch& arch) {
  if (!copies_ahead(arch)) return {{64, 32}, {4, 2}, {1}};
  return {{64, 128}, {4, 8}, {2, 1, 3}};
}

std::vector<Knob> rows_knobs(const KernelSpec& spec, const Arch& arch) {
  const bool there = makes(spec, Gradients::kQ);
  const Sides all = sides(arch);
  return {{"block_m", values_if(there, all.stay_rows), "stationary rows of q, 16 or 32 per warp"},
          {"block_n", values_if(there, {32, 64, 16, 48}), "keys per step of dq"},
          {"warps", values_if(there, all.warps), "warps of a block of dq"},
          {"kv_slots", values_if(there, all.slots), "steps of dq in shared memory"},
          {"blocks_per_sm", values_if(there, {1, 2, 3, 4}),
           "blocks of dq per multiprocessor that registers allow"}};
}

std::vector<Knob> keys_knobs(const KernelSpec& spec, const Arch& arch) {
  const bool there = makes_keys(spec);
  const bool both = makes(spec, Gradients::kK) && makes(spec, Gradients::kV);
  const Sides all = sides(arch);
  return {{"key_block_n", values_if(there, all.stay_rows), "stationary keys, 16 or 32 per warp"},
          {"key_block_m", values_if(there, {32, 64, 16, 48}), "rows per step of dk and dv"},
          {"key_warps", values_if(there, all.warps), "warps of a block of dk and dv"},
          {"q_slots", values_if(there, all.slots), "steps of dk and dv in shared memory"},
          {"key_blocks_per_sm", values_if(there, {1, 2, 3, 4}),
           "blocks of dk and dv per multiprocessor that registers allow"},
          {"split_kv", values_if(both, {0, 1}), "separate kernels for dk and dv"}};
}

int register_cap(const MmaGradientKernel& kernel, const Arch& arch) {
  return attune::register_cap(arch, kernel.threads() * kernel.blocks_per_sm);
}

int registers_needed(const MmaGradientKernel& kernel, const KernelSpec& spec) {
  const int programs = (has_score_stage(spec) ? kRegistersOfPrograms : 0) +
                       (has_mask_program(spec) ? kRegistersOfPrograms : 0);
  return kernel.accumulators() + kOtherRegisters + programs +
         8 * backward_sm80_layout(kernel.tile).row_tiles;
}

Broken broken_kernel(const MmaGradientKernel& kernel, const KernelSpec& spec, const Arch& arch) {
  const int stay = kernel.tile.stay_rows, warps = kernel.tile.warps;
  if (stay != 16 * warps && stay != 32 * warps)
    return fmt::format("a block has {} stationary rows; must be 16 or 32 for each of {} warps",
                       stay, warps);
  const int bytes = kernel.shared_bytes();
  if (bytes > arch.shared_bytes_per_block)
    return fmt::format("the tiles take {} bytes of shared memory; {} has {} per block", bytes,
                       arch.name(), arch.shared_bytes_per_block);
  if (kernel.blocks_per_sm * (bytes + reserved_shared_bytes(arch)) > arch.shared_bytes_per_sm)
    return fmt::format(
        "{} blocks of {} bytes of shared memory do not fit the {} of a multiprocessor",
        kernel.blocks_per_sm, bytes, arch.shared_bytes_per_sm);
  const int needed = registers_needed(kernel, spec), cap = register_cap(kernel, arch);
  if (needed <= cap) return std::nullopt;
  return fmt::format("a thread needs about {} registers; {} blocks of {} threads leave it {}",
                     needed, kernel.blocks_per_sm, kernel.threads(), cap);
}

std::vector<std::string> names_of(const std::vector<Knob>& knobs) {
  std::vector<std::string> names;
  for (const Knob& knob : knobs) names.push_back(knob.name);
  return names;
}

// The knobs of the two kernels are independent.
SearchSpace rows_space(const KernelSpec& spec, const Arch& arch) {
  const std::vector<Knob> knobs = rows_knobs(spec, arch);
  if (!makes(spec, Gradients::kQ)) return {knobs, {}};
  return {knobs, {{"rows", names_of(knobs), [=](const Config& c) {
                     return broken_kernel(mma_rows_kernel(spec, c), spec, arch);
                   }}}};
}

SearchSpace keys_space(const KernelSpec& spec, const Arch& arch) {
  const std::vector<Knob> knobs = keys_knobs(spec, arch);
  if (!makes_keys(spec)) return {knobs, {}};
  return {knobs, {{"keys", names_of(knobs), [=](const Config& c) {
                     Broken broken;
                     for (const MmaGradientKernel& kernel : mma_keys_kernels(spec, c))
                       if (!broken) broken = broken_kernel(kernel, spec, arch);
                     return broken;
                   }}}};
}

double clocks_of(const std::vector<MmaGradientKernel>& kernels, const KernelSpec& spec,
                 const Shape& shape, const DeviceFacts& device) {
  double clocks = 0;
  for (const MmaGradientKernel& kernel : kernels)
    clocks += mma_gradient_clocks(kernel, spec, shape, device);
  return clocks;
}

int spare_of_dropout(const KernelSpec& spec) {
  return kSpareOfDropout * (has_mask_program(spec) ? 4 : has_score_stage(spec) ? 2 : 1);
}

// Returns the number of registers that these kernels lack for a default.
int shortage(const std::vector<MmaGradientKernel>& kernels, const KernelSpec& spec,
             const Arch& arch) {
  const int spare = kSpare + (arch.compute_capability >= 100 ? kSpareOfBlackwell : 0) +
                    (spec.dropout > 0 ? spare_of_dropout(spec) : 0) +
                    (reads_several_elements(spec) ? kSpareOfElements : 0);
  int lacking = 0;
  for (const MmaGradientKernel& kernel : kernels)
    lacking =
        std::max(lacking, registers_needed(kernel, spec) + spare - register_cap(kernel, arch));
  return lacking;
}

// Sets the knobs of a space to its cheapest config among those for which registers suffice. If
// there is none, sets the config that lacks the fewest registers.
template <class KernelsOf>
void set_default(const SearchSpace& space, const KernelSpec& spec, const Arch& arch,
                 const Shape& shape, const DeviceFacts& device, const KernelsOf& kernels_of,
                 Config* config) {
  const std::vector<Config> all = space.enumerate();
  if (all.empty()) throw Error(ErrorCode::kInternal, "backward_sm80 has no legal config");
  std::vector<double> costs;
  for (const Config& one : all) {
    const std::vector<MmaGradientKernel> kernels = kernels_of(one);
    constexpr double kForARegister = 1e3;
    costs.push_back(clocks_of(kernels, spec, shape, device) *
                    (1 + kForARegister * shortage(kernels, spec, arch)));
  }
  const auto best = std::min_element(costs.begin(), costs.end()) - costs.begin();
  for (const auto& [name, value] : all[static_cast<size_t>(best)].knobs()) config->set(name, value);
}

class BackwardSm80 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "backward_sm80"; }
  std::string_view source_path() const override { return "cuda/backward_sm80/backward_sm80.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/backward_sm80/backward_sm80_knobs.cuh";
  }
  const Served& serves() const override { return serves_sums_of_gradients(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    const SearchSpace rows = rows_space(spec, arch), keys = keys_space(spec, arch);
    std::vector<Knob> knobs = rows.knobs();
    std::vector<Constraint> constraints = rows.constraints();
    knobs.insert(knobs.end(), keys.knobs().begin(), keys.knobs().end());
    constraints.insert(constraints.end(), keys.constraints().begin(), keys.constraints().end());
    return {knobs, constraints};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    Config config;
    set_default(
        rows_space(spec, arch), spec, arch, shape, device,
        [&](const Config& c) { return std::vector{mma_rows_kernel(spec, c)}; }, &config);
    set_default(
        keys_space(spec, arch), spec, arch, shape, device,
        [&](const Config& c) { return mma_keys_kernels(spec, c); }, &config);
    return config;
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    Resources r{.threads = kPrepareThreads, .max_registers = 0};
    for (const MmaGradientKernel& kernel : mma_gradient_kernels(spec, config)) {
      r.shared_bytes = std::max(r.shared_bytes, kernel.shared_bytes());
      r.max_registers = std::max(r.max_registers, register_cap(kernel, arch));
    }
    return r;
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    const bool split = config.at("split_kv") != 0;
    return {bool_constant("kInOrder", true),
            bool_constant("kHasKeys", makes_keys(spec)),
            bool_constant("kKeysMakeK", makes(spec, Gradients::kK)),
            bool_constant("kKeysMakeV", makes(spec, Gradients::kV) && !split),
            {"int", "kL2SectionMb", std::to_string(kL2SectionMb)}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kGradients};
    LaunchStructure all{
        .steps = {{.entry = "attune_prepare", .parts = parts, .threads = kPrepareThreads}},
        .main_step = 1,
        .workspace = {{.name = "row_sums"}}};
    if (spec.dropout > 0) parts.insert(parts.begin() + 1, ArgumentPart::kDropout);
    all.steps[0].parts = parts;
    if (has_score_args(spec)) parts.insert(parts.begin(), ArgumentPart::kScores);
    for (const MmaGradientKernel& kernel : mma_gradient_kernels(spec, config)) {
      StepStructure step{.parts = parts,
                         .threads = static_cast<unsigned>(kernel.threads()),
                         .shared_bytes = static_cast<unsigned>(kernel.shared_bytes())};
      if (!kernel.of_rows())
        step.entry =
            !kernel.makes_first() && config.at("split_kv") != 0 ? "attune_values" : "attune_keys";
      all.steps.push_back(std::move(step));
    }
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts&) const override {
    const auto knob = [&](const char* name) { return static_cast<int>(config.at(name)); };
    const int64_t rows = backward_sm90_rows(shape.seqlen_q, knob("block_m"), knob("key_block_m"));
    const int64_t heads = shape.num_heads_q * shape.batch;
    LaunchSizes sizes{
        .steps = {{.grid_x = grid_extent(heads * backward_prepare_blocks(rows, spec.head_dim_v))}},
        .workspace = {
            {.columns = rows, .rows = 2, .heads = shape.num_heads_q, .batch = shape.batch}}};
    for (const MmaGradientKernel& kernel : mma_gradient_kernels(spec, config))
      sizes.steps.push_back({.grid_x = grid_extent(mma_gradient_tiles(kernel, shape))});
    return sizes;
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return clocks_of(mma_gradient_kernels(spec, config), spec, shape, device);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = gradient_refusal(spec, arch)) return reason;
    if (spec.dtype_kv != spec.dtype_q || spec.dtype_o != spec.dtype_q)
      return fmt::format("dtype_kv is {} and dtype_o is {}; must be dtype_q, {}",
                         dtype_name(spec.dtype_kv), dtype_name(spec.dtype_o),
                         dtype_name(spec.dtype_q));
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& backward_sm80() {
  static const BackwardSm80 instance;
  return instance;
}

}  // namespace attune
