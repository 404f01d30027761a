// SPDX-License-Identifier: Apache-2.0
// top_k_cuda: op top_k on every CUDA arch. Kernel: templates/cuda/small/top_k.cu.
// The kernel, templates/cuda/small/top_k.cu, explains the knobs.
#include "generator/families/families.hpp"

#include <algorithm>
#include <cmath>

#include "generator/core/ops/ops.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

constexpr double kPassesOfRow = 1.1;  // over the scores of a row in global memory
// Clocks of the steps that do not depend on the length of a row, for 1024 threads.
constexpr double kClocksOfRow = 10000;
constexpr double kMostBytesPerClock = 20;  // of one multiprocessor, from global memory
constexpr double kMostBlocks = 5;          // of one multiprocessor, by their shared memory

// Returns the blocks of a multiprocessor, by the registers that a thread mostly has.
double resident_blocks(const KernelSpec& spec, const Config& config) {
  const bool few_registers = config.at("vectors") <= 2 && dtype_bytes(spec.dtype_q) == 4;
  const double threads = few_registers ? 2048 : 1024;
  return std::min(kMostBlocks,
                  std::max(1.0, std::floor(threads / static_cast<double>(config.at("threads")))));
}

class TopKCuda final : public KernelTemplate {
 public:
  std::string_view name() const override { return "top_k_cuda"; }
  std::string_view source_path() const override { return "cuda/small/top_k.cu"; }
  std::string_view knobs_path() const override { return "cuda/small/top_k_knobs.cuh"; }
  const Served& serves() const override { return serves_choosing(); }

  SearchSpace space(const KernelSpec&, const Arch&) const override {
    return SearchSpace({{"threads", {512, 256, 1024}, "threads per block, which handles a row"},
                        {"vectors", {4, 2, 1}, "loads of 16 bytes that a thread has in flight"}},
                       {});
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
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape& shape,
                    const DeviceFacts&) const override {
    return {.steps = {{.grid_x = grid_extent(shape.batch * shape.num_heads_q * shape.seqlen_q),
                       .num_tiles = tile_count(keys_of_list(shape))}}};
  }

  // Returns clocks: waves of rows, each as long as its loads from memory and its steps. Fitted to
  // an H200: 512 rows of 131072 keys take 100 us with (1024, 2), 140 with (256, 4), and
  // in bf16 91 us with (256, 4), 97 with (512, 4), 117 with (1024, 4).
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const auto threads = static_cast<double>(config.at("threads"));
    const double rows =
        static_cast<double>(shape.batch * shape.num_heads_q) * static_cast<double>(shape.seqlen_q);
    const double together = std::min(rows, resident_blocks(spec, config) * device.sm_count);
    const double waves = std::ceil(rows / together);
    const double sharing = std::max(1.0, together / device.sm_count);  // blocks per multiprocessor
    const double bytes =
        kPassesOfRow * static_cast<double>(shape.seqlen_kv) * dtype_bytes(spec.dtype_q);
    const double in_flight = threads * static_cast<double>(config.at("vectors")) * 16;
    // One block gets the bytes that it has in flight per latency of about 800 clocks.
    const double rate =
        std::min(kMostBytesPerClock / sharing * (1.05 - 0.05 * sharing), in_flight / 800);
    return waves * (bytes / rate + kClocksOfRow * (0.5 + 512 / threads));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCuda);
  }
};

}  // namespace

const KernelTemplate& top_k_cuda() {
  static const TopKCuda instance;
  return instance;
}

}  // namespace attune
