// SPDX-License-Identifier: Apache-2.0
// backward_sm90_one_kernel: one kernel makes all gradients by tiles of 128 keys, and adds dQ to
// fp32 sums in the workspace, which a last step scales and rounds. Five products a step instead of
// seven. Source: templates/cuda/backward_sm90/one_kernel/.
//
// The way of a choice: space() has the knobs, and the rule for the rows of a step. default_config()
// takes the cheapest config of the whole space (gradient_clocks.cpp).
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/families/backward/sm90/gradients_sm90.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/render/wgmma_emitter.hpp"

namespace attune {
namespace {

// Rows of L2 and delta are padded to whole pairs of warpgroups, and to whole steps.
constexpr int kPaddedRows = kTwoWarpgroups;

// Values of the knob scheduler: a block for each tile, or persistent blocks that draw their tiles.
constexpr int kOneTile = 0, kDynamic = 2;

int rows_of(const Config& config) { return as_int(config, "key_block_m"); }
bool is_ordered(const Config& config) { return config.at("ordered") != 0; }
bool is_dynamic(const Config& config) { return config.at("scheduler") == kDynamic; }

// True if the kernel makes dP and dS for half of a step's rows at a time.
bool makes_halves(const KernelSpec& spec, const Config& c) {
  return is_ordered(c) &&
         backward_one_kernel_in_halves(rows_of(c), spec.head_dim_qk + spec.head_dim_v);
}
// True if a separate warpgroup makes dQ.
bool has_dq_warpgroup(const KernelSpec& spec, const Config& c) {
  return is_ordered(c) && backward_has_dq_warpgroup(rows_of(c), spec.head_dim_qk, spec.head_dim_v);
}

BackwardKernel all_kernel(const KernelSpec& spec, const Config& c) {
  const int rows = rows_of(c);
  const KeysTile tile{kTwoWarpgroups, rows, as_int(c, "q_slots"), as_int(c, "dout_slots")};
  BackwardKernel all = backward_keys_kernel(spec, tile, BackwardMakes::kAll);
  all.section_heads = as_int(c, "section_heads");
  all.ordered = is_ordered(c);
  all.draws_tiles = is_dynamic(c);
  all.splits_heads = splits_heads(c);
  all.dq_warpgroup = has_dq_warpgroup(spec, c);
  all.tile.ds_slots = all.ordered ? kOneKernelDsSlots : kUnorderedDsSlots;
  // P next to dQ, or next to dP and rounded P: for all rows of a step, or half of them.
  const int dq = backward_one_kernel_columns(rows, spec.head_dim_qk) / 2;
  const int gradients = spec.head_dim_qk + spec.head_dim_v;
  const int beside = rows / 2 + rows / 4;
  if (all.dq_warpgroup)
    all.accumulators = backward_sm90_accumulators(rows, gradients);
  else if (!all.ordered)
    all.accumulators = backward_unordered_accumulators(rows, gradients, 2 * dq);
  else
    all.accumulators =
        gradients / 2 + rows / 2 + std::max(makes_halves(spec, c) ? beside / 2 : beside, dq);
  return all;
}

// Checks how two warpgroups share dQ: by columns of 64, or by rows of 64. With one more warpgroup,
// that has all of it.
Broken broken_sharing(const KernelSpec& spec, const Config& c) {
  const int rows = rows_of(c);
  const bool two_panels = spec.head_dim_qk > kPanelColumns && spec.head_dim_qk <= 2 * kPanelColumns;
  if (rows % kWarpgroupRows != 0 && (is_ordered(c) || !two_panels))
    return fmt::format(
        "key_block_m is {}; must be {} or {} (any with a head_dim_qk of {} to {} and ordered 0)",
        rows, kWarpgroupRows, 2 * kWarpgroupRows, kPanelColumns + 1, 2 * kPanelColumns);
  const int multiple = has_dq_warpgroup(spec, c) ? kPanelColumns / 2 : 2 * kPanelColumns;
  if (rows == kWarpgroupRows && spec.head_dim_qk % multiple != 0)
    return fmt::format("key_block_m {} needs a multiple of {} as head_dim_qk", rows, multiple);
  return std::nullopt;
}

class OneKernel final : public GradientsSm90 {
 public:
  OneKernel() : GradientsSm90("backward_sm90_one_kernel", "one_kernel", {"dropout"}) {}

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<int64_t> orders{1, 0};
    if (spec.backward.deterministic) orders = {1};
    if (spec.dropout > 0) orders = {0};  // ordered sums have no dropout
    std::vector<Knob> knobs{
        {"key_block_m", {32, 48, 64, 80, 96, 112, 128}, "rows per step"},
        {"q_slots", {2, 3}, "tiles of q in shared memory"},
        {"dout_slots", {1, 2, 3}, "tiles of dout in shared memory"},
        {"section_heads", {16, 4, 32, 8}, "heads whose tiles are taken in turn"},
        {"scheduler", {kOneTile, kDynamic}, "0: a block a tile; 2: persistent blocks draw tiles"}};
    add_head_knob(spec, &knobs);
    knobs.push_back({"ordered", orders,
                     "1: blocks add to dq in the order of keys, for equal bits in every run"});
    return {knobs,
            {{"sharing",
              {"key_block_m", "ordered"},
              [=](const Config& c) { return broken_sharing(spec, c); }},
             {"kernel", {"key_block_m", "q_slots", "dout_slots", "ordered"}, [=](const Config& c) {
                return broken_sharing(spec, c) ? std::nullopt
                                               : broken_kernel(all_kernel(spec, c), spec, arch);
              }}}};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  std::vector<BackwardKernel> kernels(const KernelSpec& spec, const Config& config) const override {
    return {all_kernel(spec, config)};
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    std::vector<Constant> all = gradient_constants();
    all.push_back({"int", "kBlockM", std::to_string(kPaddedRows)});
    all.push_back({"int", "kKeyBlockN", std::to_string(kTwoWarpgroups)});
    if (makes_halves(spec, config)) all.push_back(bool_constant("kStepsInHalves", true));
    if (has_dq_warpgroup(spec, config)) all.push_back(bool_constant("kDqWarpgroup", true));
    add_head_constant(config, &all);
    return all;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    const int qk = spec.head_dim_qk, v = spec.head_dim_v, rows = rows_of(config);
    std::vector<WgmmaProduct> products;
    if (backward_dq_half(rows) == DqHalf::kTransposed)
      products = {{"wgmma_keys_ds", WgmmaA::kSharedColumns, rows, kWarpgroupRows}};
    else
      products = {{"wgmma_ds_keys", WgmmaA::kSharedRows,
                   has_dq_warpgroup(spec, config) ? qk : backward_one_kernel_columns(rows, qk),
                   kWarpgroupRows}};
    if (makes_halves(spec, config)) {
      products.push_back({"wgmma_v_dout_half", WgmmaA::kShared, rows / 2, v, rows});
      products.push_back({"wgmma_p_dout_half", WgmmaA::kRegisters, v, rows / 2, rows});
      products.push_back({"wgmma_ds_q_half", WgmmaA::kRegisters, qk, rows / 2, rows});
    }
    products.push_back({"wgmma_k_q", WgmmaA::kShared, rows, qk});
    products.push_back({"wgmma_v_dout", WgmmaA::kShared, rows, v});
    products.push_back({"wgmma_ds_q", WgmmaA::kRegisters, qk, rows});
    products.push_back({"wgmma_p_dout", WgmmaA::kRegisters, v, rows});
    return {{"generated/wgmma.cuh", emit_wgmma_products(spec.dtype_q, products)}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    LaunchStructure all{
        .steps = {prepare_step(),
                  gradient_step(all_kernel(spec, config), spec),
                  {.entry = "attune_round",
                   .parts = {ArgumentPart::kBase, ArgumentPart::kGradients},
                   .threads = 2 * kWarpgroupThreads,
                   .early = true}},
        .main_step = 1,
        .workspace = {{.name = "row_sums"}, {.name = "dq", .alignment = 256}, {.name = "turns"}}};
    add_dropout(spec, &all);
    add_join(config, &all);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const int64_t step = rows_of(config), blocks = (shape.seqlen_q + step - 1) / step;
    const int64_t rows = backward_sm90_rows(shape.seqlen_q, kPaddedRows, rows_of(config));
    const int64_t heads = shape.num_heads_q * shape.batch;
    const int64_t words = is_ordered(config) ? 0 : kClaimWords;
    const BackwardKernel kernel = all_kernel(spec, config);
    const int64_t dq_floats = step * backward_dq_columns(rows_of(config), spec.head_dim_qk);
    LaunchSizes all{.steps = {prepare_size(spec, shape, rows),
                              gradient_size(kernel, spec, shape, device),
                              {.grid_x = grid_extent(heads * blocks)}},
                    .workspace = {sums_extents(shape, rows),
                                  {.columns = dq_floats + words,
                                   .rows = blocks,
                                   .heads = shape.num_heads_q,
                                   .batch = shape.batch},
                                  // Counters of blocks, and one of tiles
                                  {.columns = heads * blocks + 1}}};
    add_join(kernel, spec, shape, device, &all);
    return all;
  }

 private:
  Sums sums(const Config&) const override { return Sums::kRounds; }

  Broken family_refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (spec.dropout > 0 && spec.backward.deterministic)
      return "dropout needs dq added in no fixed order; deterministic is 1";
    if (spec.head_dim_qk % 16 != 0)
      return fmt::format("head_dim_qk is {}; must be a multiple of 16", spec.head_dim_qk);
    const SearchSpace all = space(spec, arch);
    Config config = all.first_values();
    Broken first;
    for (const int64_t order : all.knobs().back().values)
      for (const int64_t rows : all.knobs().front().values) {
        config.set("ordered", order);
        config.set("key_block_m", rows);
        const Broken broken = all.broken(config);
        if (!broken) return std::nullopt;
        if (!first || rows == kWarpgroupRows) first = broken;
      }
    return fmt::format("head_dim_qk is {} and head_dim_v is {}; no step fits: {}", spec.head_dim_qk,
                       spec.head_dim_v, *first);
  }
};

}  // namespace

const KernelTemplate& backward_sm90_one_kernel() {
  static const OneKernel instance;
  return instance;
}

}  // namespace attune
