// SPDX-License-Identifier: Apache-2.0
// Family backward_cpu: gradients of attention on any CPU (templates/cpu/backward/backward_cpu.cpp).
// The kernel, templates/cpu/backward/backward_cpu.cpp, explains the knobs.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/problem/op.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

constexpr int64_t kCounterBytes = 256;
constexpr int64_t kVectorBytes = 64;  // the widest vectors
constexpr int64_t kMaxPanels = 4;
constexpr int kMinSums = 12;  // enough to hide the latency of a multiply-add

int lanes_of(const Arch& arch) { return arch.vector_bytes / 4; }

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Returns at least sizeof(Scratch) of the kernel on any CPU; the kernel asserts it.
int64_t scratch_bytes(const KernelSpec& spec, const Config& config) {
  const int64_t block_m = config.at("block_m"),
                score_rows = config.at("block_n") + config.at("rows");
  const int64_t panel = config.at("vectors") * kVectorBytes;
  const int64_t dims = spec.head_dim_qk + spec.head_dim_v;
  const int64_t padded = round_up(spec.head_dim_qk, 16) + round_up(spec.head_dim_v, 16);
  const int64_t rows = 4 * block_m * (dims + 2 + padded + spec.head_dim_qk);
  const int64_t keys = 4 * score_rows * (dims + padded);
  const int64_t panels = spec.dropout > 0 ? 4 : 3;  // panels of scores, gradients, slopes, dropout
  return round_up(rows + keys + panels * score_rows * panel + 4096, 4096);
}

int64_t tiles_of(const KernelSpec& spec, const Config& config, const Shape& shape) {
  const int64_t block_m = config.at("block_m");
  return (shape.seqlen_q * spec.gqa_ratio + block_m - 1) / block_m;
}

bool has_both(const KernelSpec& spec) {
  return asks(spec.backward.gradients, Gradients::kQ) &&
         (asks(spec.backward.gradients, Gradients::kK) ||
          asks(spec.backward.gradients, Gradients::kV));
}

Constraint tile_fits(const Arch& arch) {
  return {"register tile",
          {"rows", "vectors"},
          [registers = vector_registers(arch)](const Config& config) -> std::optional<std::string> {
            const int64_t rows = config.at("rows"), vectors = config.at("vectors");
            const int64_t needed = rows * vectors + vectors + 1;
            if (rows * vectors >= kMinSums && needed <= registers) return std::nullopt;
            return fmt::format(
                "rows {} x vectors {} are {} sums in {} vector registers; must be at least {} "
                "sums, in at most {} registers",
                rows, vectors, rows * vectors, needed, kMinSums, registers);
          }};
}

Constraint whole_panels(const Arch& arch) {
  return {"panels",
          {"block_m", "vectors"},
          [lanes = lanes_of(arch)](const Config& config) -> std::optional<std::string> {
            const int64_t panel = config.at("vectors") * lanes, block_m = config.at("block_m");
            if (block_m % panel == 0 && block_m / panel <= kMaxPanels) return std::nullopt;
            return fmt::format(
                "block_m is {}; must be 1 to {} panels of vectors x {} lanes = {} rows", block_m,
                kMaxPanels, lanes, panel);
          }};
}

class BackwardCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "backward_cpu"; }
  std::string_view source_path() const override { return "cpu/backward/backward_cpu.cpp"; }
  std::string_view knobs_path() const override { return "cpu/backward/backward_cpu_knobs.hpp"; }

  bool scores_in_panels() const override { return true; }
  const Served& serves() const override { return serves_sums_of_gradients(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<int64_t> block_m;
    for (const int64_t vectors : {1, 2, 4, 8}) block_m.push_back(vectors * lanes_of(arch));
    const std::vector<int64_t> passes =
        has_both(spec) ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2};
    return SearchSpace(
        {{"block_m", block_m, "query rows (of all heads of a group) per block of keys"},
         {"block_n", {64, 128, 256}, "keys per block"},
         {"rows", {4, 6, 8, 12}, "register tile: keys (or columns) at a time"},
         {"vectors", {1, 2, 4}, "register tile: vectors of query rows (or columns) at a time"},
         {"unroll", {1, 4}, "steps of the products' inner loops per iteration"},
         {"passes", passes,
          "1: a thread takes a K/V head and finds scores once; 2: dq by rows, dk and dv by keys"}},
        {tile_fits(arch), whole_panels(arch)});
  }

  // Returns the cheaper of two configs: the same register tile with passes 1 and with passes 2.
  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const bool many = vector_registers(arch) == 32;
    std::vector<Config> candidates;
    for (const int64_t passes : {1, 2}) {
      if (passes == 1 && !has_both(spec)) continue;
      for (const auto& [rows, vectors] : {std::pair<int64_t, int64_t>{many ? 8 : 6, 2}})
        candidates.push_back(Config({{"block_m", 2 * vectors * lanes_of(arch)},
                                     {"block_n", 128},
                                     {"rows", rows},
                                     {"vectors", vectors},
                                     {"unroll", 4},
                                     {"passes", passes}}));
    }
    const auto cost = [&](const Config& c) { return predicted_cost(spec, arch, c, shape, device); };
    return *std::min_element(candidates.begin(), candidates.end(),
                             [&](const Config& a, const Config& b) { return cost(a) < cost(b); });
  }

  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override {
    return vector_constants(spec, arch, scratch_bytes(spec, config));
  }

  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {
        .steps = {{.entry = "attune_delta"}, {}, {.entry = "attune_queries"}},
        .main_step = 1,
        .workspace = {{.name = "counters, statistics and scratch", .alignment = kCounterBytes}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    const int64_t rows = shape.seqlen_q * spec.gqa_ratio;
    const int64_t statistics = round_up(8 * shape.batch * shape.num_heads_kv * rows, 256);
    const bool sums_dq = has_both(spec) && config.at("passes") == 1;
    const int64_t dq =
        sums_dq ? 4 * tiles_of(spec, config, shape) * config.at("block_m") * spec.head_dim_qk : 0;
    const int64_t bytes =
        kCounterBytes + statistics + device.sm_count * (scratch_bytes(spec, config) + dq);
    return {.steps = std::vector<StepSize>(3), .workspace = {{.columns = bytes / 4}}};
  }

  // Returns cycles of the busiest thread: multiply-adds of whole panels, loads of a register tile,
  // exponentials, repacking of rows and keys, and the rounding of work to threads.
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const double rows = static_cast<double>(config.at("rows"));
    const double vectors = static_cast<double>(config.at("vectors"));
    const double block_m = static_cast<double>(config.at("block_m"));
    const double block_n = static_cast<double>(config.at("block_n"));
    const double lanes = lanes_of(arch), threads = device.sm_count;
    const double groups = static_cast<double>(shape.batch) * shape.num_heads_kv;
    const double tiles = static_cast<double>(tiles_of(spec, config, shape));
    const double blocks = std::ceil(static_cast<double>(shape.seqlen_kv) / block_n);
    const double dims = spec.head_dim_qk + spec.head_dim_v;

    const double visible = useful_flops(problem_of(spec, shape)) / (5 * dims);  // approximate
    const double edges = spec.mask == Mask::kNone ? 0 : block_n * tiles * block_m / 4 * groups;
    const double step = 1 + 0.13 * (1 / vectors + 1 / rows) + (config.at("unroll") == 1 ? 0.01 : 0);
    const bool split = has_both(spec) && config.at("passes") == 2;
    const double products = (split ? 3.5 : 2.5) * dims * step + (split ? 40 : 20);
    const double moved = 1.5 * dims * (block_m / block_n + (split ? 1 : 0.3));
    const double cycles = (visible + edges) * (products + moved) / lanes;
    const double items = config.at("passes") == 1 ? groups : groups * std::max(1.0, blocks);
    return cycles / items * std::ceil(items / threads);
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return cpu_refusal(spec, arch);
  }
};

}  // namespace

const KernelTemplate& backward_cpu() {
  static const BackwardCpu instance;
  return instance;
}

}  // namespace attune
