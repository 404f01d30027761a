// SPDX-License-Identifier: Apache-2.0
// The family of op block_map on every CUDA arch; see templates/cuda/small/block_map.cu.
// The kernel, templates/cuda/small/block_map.cu, explains the knob.
#include "generator/families/families.hpp"

#include "generator/families/served.hpp"
#include "templates/shared/block_map.h"

namespace attune {
namespace {

constexpr int64_t kWarpThreads = 32;

class BlockMapCuda final : public KernelTemplate {
 public:
  std::string_view name() const override { return "block_map_cuda"; }
  std::string_view source_path() const override { return "cuda/small/block_map.cu"; }
  std::string_view knobs_path() const override { return "cuda/small/small_knobs.cuh"; }

  const Served& serves() const override { return serves_mapping(); }

  SearchSpace space(const KernelSpec&, const Arch&) const override {
    return SearchSpace({{"warps", {8, 4, 2}, "warps per thread block"}}, {});
  }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return Config({{"warps", 2}});  // with 4, sm_86 spills
  }
  Resources resources(const KernelSpec&, const Arch&, const Config& config) const override {
    return {.threads = static_cast<int>(config.at("warps") * kWarpThreads)};
  }

  LaunchStructure structure(const KernelSpec&, const Config& config) const override {
    return {.steps = {{.parts = {ArgumentPart::kScores, ArgumentPart::kBase},
                       .threads = static_cast<unsigned>(config.at("warps") * kWarpThreads)}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config& config, const Shape& shape,
                    const DeviceFacts&) const override {
    const int64_t rows = (shape.seqlen_q + kGranuleRows - 1) / kGranuleRows;
    const int64_t strip = kGranuleKeys * kWarpThreads;
    const int64_t warps =
        (shape.seqlen_kv + strip - 1) / strip * rows * shape.num_heads_q * shape.batch;
    return {
        .steps = {{.grid_x = grid_extent((warps + config.at("warps") - 1) / config.at("warps"))}}};
  }

  // All configs do the same work; blocks of fewer warps end closer together.
  double predicted_cost(const KernelSpec&, const Arch&, const Config& config, const Shape& shape,
                        const DeviceFacts&) const override {
    return static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv) *
           (1 + 0.01 * static_cast<double>(config.at("warps")));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCuda);
  }
};

}  // namespace

const KernelTemplate& block_map_cuda() {
  static const BlockMapCuda instance;
  return instance;
}

}  // namespace attune
