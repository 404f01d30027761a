// SPDX-License-Identifier: Apache-2.0
// merge_cuda: op merge on every CUDA arch. Kernel: templates/cuda/small/merge.cu.
// The kernel, templates/cuda/small/merge.cu, explains the knobs.
#include "generator/families/families.hpp"

#include <algorithm>
#include <cmath>

#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/row_lanes.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

constexpr int64_t kFewestLanes = 1;
constexpr int64_t kMostSteps = 8;  // steps of eight columns of each state, in a thread's registers

class MergeCuda final : public KernelTemplate {
 public:
  std::string_view name() const override { return "merge_cuda"; }
  std::string_view source_path() const override { return "cuda/small/merge.cu"; }
  std::string_view knobs_path() const override { return "cuda/small/small_knobs.cuh"; }
  const Served& serves() const override { return serves_merging(); }

  SearchSpace space(const KernelSpec& spec, const Arch&) const override {
    return SearchSpace({{"lanes", {32, 16, 8, 4, 2, 1}, "threads per row"},
                        {"threads", {256, 128, 512}, "threads per block"}},
                       {lanes_hold_rows(spec.head_dim_qk, kMostSteps, kFewestLanes)});
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec&, const Arch& arch, const Config& config) const override {
    const int threads = static_cast<int>(config.at("threads"));
    return {.threads = threads, .max_registers = register_cap(arch, threads)};
  }

  LaunchStructure structure(const KernelSpec&, const Config& config) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales},
                       .threads = static_cast<unsigned>(config.at("threads"))}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config& config, const Shape& shape,
                    const DeviceFacts&) const override {
    const int64_t rows = config.at("threads") / config.at("lanes");
    const int64_t tiles = (shape.seqlen_q + rows - 1) / rows;
    return {.steps = {{.grid_x = grid_extent(shape.batch * shape.num_heads_q * tiles)}}};
  }

  // Returns bytes moved, increased if a thread has few of them in flight, if adjacent threads have
  // different rows, and for idle lanes in the last step.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts&) const override {
    const double rows =
        static_cast<double>(shape.batch * shape.num_heads_q) * static_cast<double>(shape.seqlen_q);
    const int64_t lanes = config.at("lanes"), steps = steps_of_lanes(spec.head_dim_qk, lanes);
    const double used = spec.head_dim_qk / static_cast<double>(8 * lanes * steps);
    const double penalty =
        0.03 * std::abs(std::log2(static_cast<double>(steps) / 2)) + 0.1 * (1 / used - 1) +
        0.1 * std::max(0.0, std::log2(8 / static_cast<double>(lanes))) +
        0.01 * std::abs(std::log2(static_cast<double>(config.at("threads")) / 256));
    return rows * spec.head_dim_qk * (1 + penalty);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCuda);
  }
};

}  // namespace

const KernelTemplate& merge_cuda() {
  static const MergeCuda instance;
  return instance;
}

}  // namespace attune
