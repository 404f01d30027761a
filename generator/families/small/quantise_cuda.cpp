// SPDX-License-Identifier: Apache-2.0
// quantise_cuda: op quantise on every CUDA arch. Kernel: templates/cuda/small/quantise.cu.
// The kernel, templates/cuda/small/quantise.cu, explains the knobs.
#include "generator/families/cheapest_config.hpp"
#include "generator/families/families.hpp"
#include "generator/families/served.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/families/limits.hpp"
#include "templates/shared/layouts/quantise_layout.h"

namespace attune {
namespace {

constexpr const char* kAmaxEntry = "attune_amax";
constexpr int64_t kMaxParts = 256;   // per block of rows, in the first of two kernels
constexpr int64_t kMaxValues = 128;  // fp32 values in a thread
constexpr int64_t kOtherRegisters = 32;
constexpr int64_t kMaxFusedValues = 65536;  // in a block of threads

bool transposed(const KernelSpec& spec) { return spec.fp8.v_layout == VLayout::kTransposed; }

// Returns the number of values that a thread holds: kSteps * kVector of the kernel.
int64_t values_per_thread(const KernelSpec& spec, const Config& config) {
  const int64_t group = transposed(spec) ? 4 : 1;
  const int64_t slots = config.at("rows") / group * (spec.head_dim_qk / config.at("vector"));
  const int64_t threads = config.at("threads");
  return (slots + threads - 1) / threads * group * config.at("vector");
}

Constraint vectors_fill_rows(const KernelSpec& spec) {
  return {"vector", {"vector"}, [spec](const Config& config) -> std::optional<std::string> {
            const int64_t vector = config.at("vector");
            if (spec.head_dim_qk % vector == 0) return std::nullopt;
            return fmt::format("vector is {}; must be a divisor of head_dim {}", vector,
                               spec.head_dim_qk);
          }};
}

Constraint rows_fit_blocks(const KernelSpec& spec) {
  return {"rows", {"fused", "rows"}, [spec](const Config& config) -> std::optional<std::string> {
            const int64_t rows = config.at("rows");
            const int64_t block = spec.fp8.scale_block_q;
            if (config.at("fused") != 0 && rows != block)
              return fmt::format("rows is {}; one kernel holds the {} rows of a factor", rows,
                                 block);
            if (block > 0 && block % rows != 0)
              return fmt::format("rows is {}; must be a divisor of scale_block {}", rows, block);
            return std::nullopt;
          }};
}

Constraint values_fit_registers(const KernelSpec& spec) {
  return {"registers",
          {"threads", "vector", "rows"},
          [spec](const Config& config) -> std::optional<std::string> {
            const int64_t threads = config.at("threads");
            // Another rule refuses it
            if (spec.head_dim_qk % config.at("vector") != 0) return std::nullopt;
            const int64_t values = values_per_thread(spec, config);
            const int64_t most = std::min(kMaxValues, 65536 / threads - kOtherRegisters);
            if (values > most)
              return fmt::format("a thread holds {} values; with {} threads at most {} fit", values,
                                 threads, most);
            const int64_t group = transposed(spec) ? 4 : 1;
            if (threads > 32 &&
                config.at("rows") / group * (spec.head_dim_qk / config.at("vector")) * 2 <= threads)
              return fmt::format("threads is {}; fewer than half of them hold elements", threads);
            return std::nullopt;
          }};
}

class QuantiseCuda final : public KernelTemplate {
 public:
  std::string_view name() const override { return "quantise_cuda"; }
  std::string_view source_path() const override { return "cuda/small/quantise.cu"; }
  std::string_view knobs_path() const override { return "cuda/small/quantise_knobs.cuh"; }

  const Served& serves() const override { return serves_quantising(); }

  SearchSpace space(const KernelSpec& spec, const Arch&) const override {
    const int64_t block = spec.fp8.scale_block_q;
    const bool may_fuse = block > 0 && block * spec.head_dim_qk <= kMaxFusedValues;
    std::vector<int64_t> rows{16, 32, 64, 128};
    if (may_fuse && std::find(rows.begin(), rows.end(), block) == rows.end()) rows.push_back(block);
    return SearchSpace(
        {{"fused", may_fuse ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0},
          "1: one kernel holds the rows of a factor; 0: one finds the factors, one rounds"},
         {"rows", rows, "rows that a thread block holds at a time"},
         {"vector", {8, 16, 32}, "elements of a row that a thread holds"},
         {"threads", {32, 64, 128, 256, 512, 1024}, "threads per block"}},
        {vectors_fill_rows(spec), rows_fit_blocks(spec), values_fit_registers(spec)});
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return cheapest_config(*this, spec, arch, shape, device);
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    const int threads = static_cast<int>(config.at("threads"));
    return {.threads = threads,
            .shared_bytes = quantise_shared_bytes(static_cast<int>(config.at("rows")),
                                                  spec.head_dim_qk, transposed(spec)),
            .max_registers = register_cap(arch, threads)};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    const StepStructure rounding{
        .parts = {ArgumentPart::kBase, ArgumentPart::kScales},
        .threads = static_cast<unsigned>(config.at("threads")),
        .shared_bytes = static_cast<unsigned>(quantise_shared_bytes(
            static_cast<int>(config.at("rows")), spec.head_dim_qk, transposed(spec)))};
    if (config.at("fused") != 0) return {.steps = {rounding}};
    const StepStructure amax{
        .entry = kAmaxEntry, .threads = rounding.threads, .shared_bytes = kQuantiseReduceBytes};
    return {.steps = {amax, rounding}, .main_step = 1, .workspace = {{.name = "largest"}}};
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts&) const override {
    const int64_t rows = config.at("rows");
    const int64_t heads = shape.batch * shape.num_heads_q;
    const unsigned tiles = grid_extent(heads * ((shape.seqlen_q + rows - 1) / rows));
    if (config.at("fused") != 0) return {.steps = {{.grid_x = tiles}}};

    const int64_t block =
        spec.fp8.scale_block_q > 0 ? spec.fp8.scale_block_q : std::max<int64_t>(1, shape.seqlen_q);
    const int64_t blocks = (shape.seqlen_q + block - 1) / block;
    const int parts = tile_count(std::clamp<int64_t>((block + rows - 1) / rows, 1, kMaxParts));
    return {.steps = {{.grid_x = grid_extent(heads * blocks * parts), .num_tiles = parts},
                      {.grid_x = tiles, .num_tiles = parts}},
            .workspace = {{.columns = parts, .rows = blocks, .heads = heads}}};
  }

  // Returns bytes moved, increased if few bytes are in flight, if a thread's share of a row is
  // small (more addresses per element), or if a rotation needs many shuffles. Weights are fitted to
  // times on an H200.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts&) const override {
    const double elements = static_cast<double>(shape.batch * shape.num_heads_q) *
                            static_cast<double>(shape.seqlen_q + 1) * spec.head_dim_qk;
    const double passes = config.at("fused") != 0 ? 1 : 2;
    const double bytes = passes * dtype_bytes(spec.dtype_q) + 1;
    const double vector = static_cast<double>(config.at("vector"));
    const double lanes = static_cast<double>(spec.head_dim_qk) / vector;
    const double penalty =
        0.05 * std::abs(std::log2(static_cast<double>(values_per_thread(spec, config)) / 45)) +
        0.03 * std::abs(std::log2(static_cast<double>(config.at("threads")) / 256)) +
        0.03 * std::abs(std::log2((transposed(spec) ? 8 : 16) / vector));
    const double shuffles = spec.quantise.rotation == Rotation::kHadamard ? std::log2(lanes) : 0;
    return elements * (bytes * (1 + penalty) + 0.2 * passes * shuffles) + 1e6 * passes;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCuda);
  }
};

}  // namespace

const KernelTemplate& quantise_cuda() {
  static const QuantiseCuda instance;
  return instance;
}

}  // namespace attune
