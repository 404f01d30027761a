// SPDX-License-Identifier: Apache-2.0
// append_kv_cuda: op append_kv on every CUDA arch. Kernel: templates/cuda/small/append_kv.cu.
// The kernel, templates/cuda/small/append_kv.cu, explains the knobs.
#include "generator/families/families.hpp"

#include <algorithm>
#include <cmath>

#include "generator/core/ops/ops.hpp"
#include "generator/families/cheapest_config.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/row_lanes.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

constexpr int64_t kFewestLanes = 2;
constexpr int64_t kMostSteps = 4;           // steps of eight columns, in a thread's registers
constexpr int64_t kResidentThreads = 2048;  // the most per multiprocessor

int widest_row(const KernelSpec& spec) { return std::max(spec.head_dim_qk, spec.head_dim_v); }

int64_t heads_of(const KernelSpec& spec, const Shape& shape) {
  return 2 * shape.num_heads_kv + (spec.append.rotary_q ? shape.num_heads_q : 0);
}

// The columns that share a factor must lie in one step.
Constraint lanes_hold_groups(int group) {
  return {"lanes of a factor", {"lanes"}, [=](const Config& config) -> std::optional<std::string> {
            const int64_t lanes = config.at("lanes");
            if (8 * lanes >= group) return std::nullopt;
            return fmt::format("lanes is {}; must be at least {}, since {} columns share a factor",
                               lanes, group / 8, group);
          }};
}

class AppendKvCuda final : public KernelTemplate {
 public:
  std::string_view name() const override { return "append_kv_cuda"; }
  std::string_view source_path() const override { return "cuda/small/append_kv.cu"; }
  std::string_view knobs_path() const override { return "cuda/small/small_knobs.cuh"; }
  const Served& serves() const override { return serves_appending(); }

  SearchSpace space(const KernelSpec& spec, const Arch&) const override {
    return SearchSpace({{"lanes", {32, 16, 8, 4, 2}, "threads per row"},
                        {"threads", {256, 128, 512}, "threads per block"}},
                       {lanes_hold_rows(widest_row(spec), kMostSteps, kFewestLanes),
                        lanes_hold_groups(columns_of_factor(spec.cache.kv_factors))});
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec&, const Arch& arch, const Config& config) const override {
    const int threads = static_cast<int>(config.at("threads"));
    return {.threads = threads, .max_registers = register_cap(arch, threads)};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    return {.steps = {{.parts = append_parts(spec),
                       .threads = static_cast<unsigned>(config.at("threads"))}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const int64_t rows = config.at("threads") / config.at("lanes");
    const int64_t blocks = (shape.batch * shape.seqlen_q * heads_of(spec, shape) + rows - 1) / rows;
    const int64_t resident = device.sm_count * (kResidentThreads / config.at("threads"));
    return {.steps = {{.grid_x = grid_extent(std::min(blocks, resident))}}};
  }

  // Returns bytes moved, increased for idle lanes in the last step and for several steps per
  // thread. Few rows take only the time of a launch, which is shorter with more threads.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts&) const override {
    const double rows = static_cast<double>(shape.batch * shape.seqlen_q) *
                        static_cast<double>(heads_of(spec, shape));
    const int widest = widest_row(spec);
    const int64_t lanes = config.at("lanes"), steps = steps_of_lanes(widest, lanes);
    const double used = widest / static_cast<double>(8 * lanes * steps);
    const double penalty =
        0.05 * static_cast<double>(steps - 1) + 0.1 * (1 / used - 1) +
        0.01 * std::abs(std::log2(static_cast<double>(config.at("threads")) / 256));
    return rows * widest * (1 + penalty);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCuda);
  }
};

}  // namespace

const KernelTemplate& append_kv_cuda() {
  static const AppendKvCuda instance;
  return instance;
}

}  // namespace attune
