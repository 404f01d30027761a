// SPDX-License-Identifier: Apache-2.0
// backward_sm90_stored: the kernel of dQ stores dS and P in the workspace, from where one kernel
// makes dK and another dV. It pays for head dims above 128, whose scores cost more to compute than
// to store. The workspace holds a round of heads. Source: templates/cuda/backward_sm90/stored/.
//
// The way of a choice: space() has the knobs of dQ's kernel and of the two others, and a rule for
// each. default_config() takes the cheapest legal knobs of each side by itself. fit() refuses
// shapes of which one head needs more workspace than a round may have.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/visibility.hpp"
#include "generator/families/backward/sm90/gradients_sm90.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "templates/shared/layouts/backward_stored_layout.h"

namespace attune {
namespace {

constexpr int kStoredElementBytes = 2;  // for dS and for P

// Returns how many of dS and P are stored.
int stored_count(const KernelSpec& spec) { return makes(spec, Gradients::kV) ? 2 : 1; }

BackwardKernel rows_kernel(const KernelSpec& spec, const Config& config) {
  return backward_rows_kernel(spec,
                              {as_int(config, "block_m"), as_int(config, "block_n"),
                               as_int(config, "k_slots"), as_int(config, "v_slots")},
                              stored_count(spec) * kStoredElementBytes);
}

// Returns the kernel of dK or dV from stored values. The gradient of a tile's keys stays in
// accumulators; rows of Q or dout, and stored values for them, stream by 64 rows.
BackwardKernel stored_kernel(const Config& c, BackwardMakes makes, int columns) {
  const int keys = as_int(c, "key_block_n"), slots = as_int(c, "q_slots");
  return {.makes = makes,
          .tile = {keys, kWarpgroupRows, slots, slots, columns, keys, false, false},
          .accumulators = columns / 2,
          .widest = columns,
          .stored_bytes = kStoredElementBytes};
}

std::vector<BackwardKernel> keys_kernels(const KernelSpec& spec, const Config& c) {
  std::vector<BackwardKernel> all{stored_kernel(c, BackwardMakes::kStoredDk, spec.head_dim_qk)};
  if (makes(spec, Gradients::kV))
    all.push_back(stored_kernel(c, BackwardMakes::kStoredDv, spec.head_dim_v));
  return all;
}

// Returns the number of places per line, which two blocks of rows share. The later block comes
// first.
int stored_stride(const KernelSpec& spec, const Shape& shape) {
  const int64_t blocks = backward_stored_blocks(shape.seqlen_q);
  const auto places = [&](int64_t block) -> int64_t {
    const int64_t first = block * kWarpgroupRows;
    const auto keys =
        keys_of_rows(spec, shape, first, std::min(first + kWarpgroupRows, shape.seqlen_q) - 1);
    const int64_t seen =
        keys.last < keys.first ? 0 : keys.last / kWarpgroupRows - keys.first / kWarpgroupRows + 1;
    return seen + 2 * kStoredMargin;
  };
  int64_t most = 0;
  for (int64_t block = 0; block < backward_stored_lines(shape.seqlen_q); ++block)
    most = std::max(most, places(block) + places(blocks - 1 - block));
  return tile_count(most);
}

int64_t place_elements(const KernelSpec& spec) {
  return stored_count(spec) * kStoredBytes / dtype_bytes(spec.dtype_q);
}

// Returns the workspace bytes of stored values per head of K.
int64_t stored_bytes(const KernelSpec& spec, const Shape& shape) {
  return spec.gqa_ratio * backward_stored_lines(shape.seqlen_q) * stored_stride(spec, shape) *
         place_elements(spec) * dtype_bytes(spec.dtype_q);
}

class Stored final : public GradientsSm90 {
 public:
  Stored() : GradientsSm90("backward_sm90_stored", "stored", {"gradients", "dropout"}) {}

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return {{{"block_m", {128, 192, 64}, "stationary rows of q, 64 per warpgroup"},
             {"block_n", {48, 32, 64, 80, 96, 112, 128}, "keys per step of dq"},
             {"k_slots", {2, 3}, "tiles of k in shared memory"},
             {"v_slots", {1, 2, 3}, "tiles of v in shared memory"},
             {"key_block_n", {128, 192, 64}, "stationary keys, 64 per warpgroup"},
             {"q_slots", {2, 3}, "tiles of q, or dout, in shared memory"}},
            {{"rows",
              {"block_m", "block_n", "k_slots", "v_slots"},
              [=](const Config& c) { return broken_kernel(rows_kernel(spec, c), spec, arch); }},
             {"keys", {"key_block_n", "q_slots"}, [=](const Config& c) {
                return broken_kernels(keys_kernels(spec, c), spec, arch);
              }}}};
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_of_sides(spec, arch, shape, device);
  }

  std::vector<BackwardKernel> kernels(const KernelSpec& spec, const Config& config) const override {
    std::vector<BackwardKernel> all = keys_kernels(spec, config);
    all.insert(all.begin(), rows_kernel(spec, config));
    return all;
  }

  Fit fit(const KernelSpec& spec, const Shape& shape) const override {
    return unfit(spec, {}, shape) ? Fit::kNever : Fit::kWell;
  }
  std::optional<std::string> unfit(const KernelSpec& spec, const Config&,
                                   const Shape& shape) const override {
    const int64_t bytes = stored_bytes(spec, shape);
    if (bytes <= kMostStoredBytes) return std::nullopt;
    return fmt::format("a head of k takes {} bytes of workspace; must be at most {}", bytes,
                       kMostStoredBytes);
  }

  std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                        const Config&) const override {
    std::vector<Constant> all = gradient_constants();
    all.push_back({"int", "kKeyBlockM", std::to_string(kWarpgroupRows)});
    return all;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config& config) const override {
    const int qk = spec.head_dim_qk, v = spec.head_dim_v, keys = as_int(config, "block_n");
    const auto of_stored = [](std::string_view function, int columns) {
      return WgmmaProduct{.function = function,
                          .a = WgmmaA::kSharedBothColumns,
                          .n = columns,
                          .k = kWarpgroupRows,
                          .row_a = kStoredRowBytes};
    };
    std::vector<WgmmaProduct> products{{"wgmma_q_k", WgmmaA::kShared, keys, qk},
                                       {"wgmma_dout_v", WgmmaA::kShared, keys, v},
                                       {"wgmma_ds_k", WgmmaA::kRegisters, qk, keys},
                                       of_stored("wgmma_stored_q", qk)};
    if (makes(spec, Gradients::kV)) products.push_back(of_stored("wgmma_stored_dout", v));
    return {{"generated/wgmma.cuh", emit_wgmma_products(spec.dtype_q, products)}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    LaunchStructure all{.steps = {prepare_step()},
                        .main_step = 1,
                        .workspace = {{.name = "row_sums"}, {.name = "ds", .dtype = spec.dtype_q}}};
    for (const BackwardKernel& kernel : kernels(spec, config))
      all.steps.push_back(gradient_step(kernel, spec,
                                        kernel.of_rows() ? kEntryName
                                        : kernel.makes == BackwardMakes::kStoredDk
                                            ? "attune_keys"
                                            : "attune_values"));
    add_dropout(spec, &all);
    all.rounds = {1, all.steps.size()};
    for (size_t i = all.rounds.begin; i < all.rounds.end; ++i)
      all.steps[i].parts.insert(all.steps[i].parts.begin() + 1, ArgumentPart::kRound);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const int heads = tile_count(shape.batch * shape.num_heads_kv);
    const int64_t fitting = backward_stored_heads(heads, stored_bytes(spec, shape));
    const int of_round = static_cast<int>(std::max<int64_t>(fitting, 1));
    const int stride = stored_stride(spec, shape);
    const int64_t rows =
        backward_sm90_rows(shape.seqlen_q, as_int(config, "block_m"), kWarpgroupRows);
    LaunchSizes sizes{.steps = {prepare_size(spec, shape, rows)},
                      .workspace = {sums_extents(shape, rows),
                                    {.columns = place_elements(spec),
                                     .rows = stride,
                                     .heads = backward_stored_lines(shape.seqlen_q),
                                     .batch = spec.gqa_ratio * of_round}},
                      .rounds = {.heads = heads, .of_round = of_round, .stride = stride}};
    Shape round = shape;  // the shape for which the multiplying kernels are launched
    round.batch = 1;
    round.num_heads_kv = of_round;
    round.num_heads_q = of_round * spec.gqa_ratio;
    for (const BackwardKernel& kernel : kernels(spec, config))
      sizes.steps.push_back(gradient_size(kernel, spec, round, device));
    return sizes;
  }

 private:
  Broken family_refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (!makes(spec, Gradients::kQ) || !makes(spec, Gradients::kK))
      return fmt::format("gradients are {}; this template serves qk and qkv",
                         gradients_text(spec.backward.gradients));
    const SearchSpace all = space(spec, arch);
    return all.broken(all.first_values());
  }
};

}  // namespace

const KernelTemplate& backward_sm90_stored() {
  static const Stored instance;
  return instance;
}

}  // namespace attune
