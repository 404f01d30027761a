// SPDX-License-Identifier: Apache-2.0
// backward_sm90: gradients of attention for sm_90a (Hopper). One kernel makes dQ, another dK and
// dV; a third makes dV if registers do not hold both. It serves every problem of the group. Source:
// templates/cuda/backward_sm90/two_kernels/.
//
// The way of a choice: space() has the knobs of both kernels and a rule for each kernel.
// default_config() takes the cheapest legal knobs of each kernel by itself. predicted_cost() adds
// the clocks of kernels() (gradient_clocks.cpp).
#include "generator/families/families.hpp"

#include "generator/families/backward/sm90/gradients_sm90.hpp"
#include "generator/render/wgmma_emitter.hpp"

namespace attune {
namespace {

const Arch& hopper() {
  static const Arch arch = parse_arch("sm_90a");
  return arch;
}

// Slots of V, and of dout: two, or one if two do not fit. Three gain too seldom to be a choice
// (templates/cuda/backward_sm90/two_kernels/LOG.md).
constexpr int kSecondSlots = 2;

bool fits(const BackwardKernel& kernel) {
  return backward_shared_bytes(kernel) <= hopper().shared_bytes_per_block;
}

BackwardKernel rows_kernel(const KernelSpec& spec, const Config& c) {
  RowsTile tile{as_int(c, "block_m"), as_int(c, "block_n"), as_int(c, "k_slots"), kSecondSlots};
  if (!fits(backward_rows_kernel(spec, tile))) tile.v_slots = 1;
  return backward_rows_kernel(spec, tile);
}

// dK and dV of separate kernels have the same slots. The kernel of dK keeps V too, so it decides.
KeysTile keys_tile(const KernelSpec& spec, const Config& c) {
  KeysTile tile{as_int(c, "key_block_n"), as_int(c, "key_block_m"), as_int(c, "q_slots"),
                kSecondSlots};
  const BackwardMakes largest =
      makes(spec, Gradients::kK) ? BackwardMakes::kDk : BackwardMakes::kDv;
  if (!fits(backward_keys_kernel(spec, tile, largest))) tile.dout_slots = 1;
  return tile;
}

// True if dK and dV have a kernel each: one kernel has too few registers, or too little shared
// memory, for both. Where one kernel fits, two never won (two_kernels/LOG.md).
bool splits(const KernelSpec& spec, const Config& c) {
  return makes(spec, Gradients::kK) && makes(spec, Gradients::kV) &&
         broken_kernel(backward_keys_kernel(spec, keys_tile(spec, c), BackwardMakes::kDkDv), spec,
                       hopper());
}

// Returns one or two kernels, in the order of a launch; none if neither dK nor dV is needed.
std::vector<BackwardKernel> keys_kernels(const KernelSpec& spec, const Config& c) {
  const auto one = [&](BackwardMakes what) {
    BackwardKernel kernel = backward_keys_kernel(spec, keys_tile(spec, c), what);
    kernel.splits_heads = splits_heads(c);
    return kernel;
  };
  const bool k = makes(spec, Gradients::kK), v = makes(spec, Gradients::kV);
  if (splits(spec, c)) return {one(BackwardMakes::kDk), one(BackwardMakes::kDv)};
  if (k && v) return {one(BackwardMakes::kDkDv)};
  if (k || v) return {one(k ? BackwardMakes::kDk : BackwardMakes::kDv)};
  return {};
}

class TwoKernels final : public GradientsSm90 {
 public:
  TwoKernels()
      : GradientsSm90("backward_sm90", "two_kernels", {"gradients", "dropout", "accumulate"}) {}

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    const bool rows = makes(spec, Gradients::kQ), keys = makes_keys(spec);
    std::vector<Knob> knobs{
        {"block_m", values_if(rows, {128, 192, 64}), "stationary rows of q, 64 per warpgroup"},
        {"block_n", values_if(rows, {48, 32, 64, 80, 96, 112, 128}), "keys per step of dq"},
        {"k_slots", values_if(rows, {2, 3}), "tiles of k in shared memory"},
        {"key_block_n", values_if(keys, {128, 192, 64}), "stationary keys, 64 per warpgroup"},
        {"key_block_m", values_if(keys, {32, 48, 64, 80, 96, 112, 128}),
         "rows per step of dk and dv"},
        {"q_slots", values_if(keys, {2, 3}), "tiles of q in shared memory"},
        {"fold_sums", values_if(rows, {0, 1}),
         "the kernel of dq computes delta, instead of a separate step"}};
    add_head_knob(spec, &knobs);
    std::vector<Constraint> rules;
    if (rows)
      rules.push_back({"rows", {"block_m", "block_n", "k_slots"}, [=](const Config& c) {
                         return broken_kernel(rows_kernel(spec, c), spec, arch);
                       }});
    if (keys)
      rules.push_back({"keys", {"key_block_n", "key_block_m", "q_slots"}, [=](const Config& c) {
                         return broken_kernels(keys_kernels(spec, c), spec, arch);
                       }});
    return {knobs, rules};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_of_sides(spec, arch, shape, device);
  }

  std::vector<BackwardKernel> kernels(const KernelSpec& spec, const Config& config) const override {
    std::vector<BackwardKernel> all;
    if (makes(spec, Gradients::kQ)) all.push_back(rows_kernel(spec, config));
    for (const BackwardKernel& one : keys_kernels(spec, config)) all.push_back(one);
    return all;
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    std::vector<Constant> all = gradient_constants();
    all.push_back({"int", "kSplitKv", splits(spec, config) ? "1" : "0"});
    all.push_back(bool_constant("kHasKeys", makes_keys(spec)));
    all.push_back(bool_constant("kKeysMakeK", makes(spec, Gradients::kK)));
    all.push_back(bool_constant("kKeysMakeV", makes(spec, Gradients::kV) && !splits(spec, config)));
    all.push_back({"int", "kVSlots", std::to_string(rows_kernel(spec, config).tile.second_slots)});
    all.push_back({"int", "kDoutSlots", std::to_string(keys_tile(spec, config).dout_slots)});
    add_head_constant(config, &all);
    return all;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    const int qk = spec.head_dim_qk, v = spec.head_dim_v;
    const int keys = as_int(config, "block_n"), rows = as_int(config, "key_block_m");
    std::vector<WgmmaProduct> products;
    if (makes(spec, Gradients::kQ))
      products = {{"wgmma_q_k", WgmmaA::kShared, keys, qk},
                  {"wgmma_dout_v", WgmmaA::kShared, keys, v},
                  {"wgmma_ds_k", WgmmaA::kRegisters, qk, keys}};
    if (makes_keys(spec)) products.push_back({"wgmma_k_q", WgmmaA::kShared, rows, qk});
    if (makes(spec, Gradients::kK)) {
      products.push_back({"wgmma_v_dout", WgmmaA::kShared, rows, v});
      products.push_back({"wgmma_ds_q", WgmmaA::kRegisters, qk, rows});
    }
    if (makes(spec, Gradients::kV))
      products.push_back({"wgmma_p_dout", WgmmaA::kRegisters, v, rows});
    return {{"generated/wgmma.cuh", emit_wgmma_products(spec.dtype_q, products)}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    const bool folds = folds_sums(config);
    LaunchStructure all{.steps = {}, .main_step = folds ? 0u : 1u};
    if (has_sums(spec, config)) all.workspace = {{.name = "row_sums"}};
    if (!folds) all.steps.push_back(prepare_step());
    for (const BackwardKernel& kernel : kernels(spec, config)) {
      const bool second = kernel.makes == BackwardMakes::kDv && splits(spec, config);
      all.steps.push_back(gradient_step(kernel, spec,
                                        kernel.of_rows() ? kEntryName
                                        : second         ? "attune_values"
                                                         : "attune_keys"));
      if (folds && kernel.of_rows()) all.steps.back().parts.push_back(ArgumentPart::kGradients);
    }
    add_dropout(spec, &all);
    add_join(config, &all);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const int64_t rows = backward_sm90_rows(shape.seqlen_q, as_int(config, "block_m"),
                                            as_int(config, "key_block_m"));
    LaunchSizes sizes{.steps = {}, .workspace = {}};
    if (has_sums(spec, config)) sizes.workspace = {sums_extents(shape, rows)};
    if (!folds_sums(config)) sizes.steps.push_back(prepare_size(spec, shape, rows));
    for (const BackwardKernel& kernel : kernels(spec, config))
      sizes.steps.push_back(gradient_size(kernel, spec, shape, device));
    add_join(kernels(spec, config).back(), spec, shape, device, &sizes);
    return sizes;
  }

 private:
  static bool folds_sums(const Config& config) { return config.at("fold_sums") != 0; }
  // True if L2 and delta are in the workspace. A kernel of dQ alone that folds them keeps them.
  static bool has_sums(const KernelSpec& spec, const Config& config) {
    return makes_keys(spec) || !folds_sums(config);
  }
  Sums sums(const Config& config) const override {
    return folds_sums(config) ? Sums::kFolded : Sums::kStep;
  }
  Broken family_refusal(const KernelSpec&, const Arch&) const override { return std::nullopt; }
};

}  // namespace

const KernelTemplate& backward_sm90() {
  static const TwoKernels instance;
  return instance;
}

}  // namespace attune
