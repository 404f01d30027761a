// SPDX-License-Identifier: Apache-2.0
// prefill_cpu: the attention kernel for CPUs with vectors. The kernel is
// templates/cpu/prefill/prefill_cpu.cpp, which explains the knobs.
//
// How a config is chosen for a problem:
// 1. cpu_refusal() returns why no CPU family serves the spec, or nullopt.
// 2. space() returns the legal configs: tile_fits() and whole_panels() are the rules.
// 3. default_config() makes a config for each of two or three register tiles (config_for()) and
//    returns the one with the least predicted_cost().
// 4. structure() and sizes() return the launch of a config.
// The tuner reads space() and predicted_cost() instead, and times what it finds.
#include "generator/families/prefill/cpu/prefill_on_cpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/problem/visibility.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

constexpr int kMaxPanels = 8;
constexpr int kFewPanels = 4;  // for defaults with wide panels or large head dims
constexpr int64_t kDefaultRows = 128;
// latency times throughput of fused multiply-adds is 8 to 10 on today's cores
constexpr int kMinAccumulators = 12;

// True if blocks must be widened before use: all types but fp32.
bool must_pack(const KernelSpec& spec) { return spec.dtype_kv != Dtype::kFp32; }

Constraint tile_fits(const Arch& arch) {
  return {"register tile",
          {"rows", "vectors"},
          [registers = vector_registers(arch)](const Config& config) -> std::optional<std::string> {
            const int64_t rows = config.at("rows");
            const int64_t vectors = config.at("vectors");
            if (rows * vectors < kMinAccumulators)
              return fmt::format(
                  "rows {} x vectors {} gives fewer than {} sums, too few to hide the latency of a "
                  "multiply-add",
                  rows, vectors, kMinAccumulators);
            if (rows * vectors + vectors + 1 > registers)
              return fmt::format("rows {} x vectors {} needs {} vector registers; the CPU has {}",
                                 rows, vectors, rows * vectors + vectors + 1, registers);
            if (rows > 8 && vectors > 1)
              return fmt::format("rows {} is for tiles of one vector; must be 4, 6 or 8", rows);
            return std::nullopt;
          }};
}

class PrefillCpu final : public PrefillOnCpu {
 public:
  std::string_view name() const override { return "prefill_cpu"; }
  const Served& serves() const override { return serves_everything(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    const int64_t lanes = lanes_of(arch);
    std::vector<int64_t> block_m;
    for (const int64_t vectors : {1, 2, 4, 8, 16}) block_m.push_back(vectors * lanes);
    const std::vector<int64_t> pack_kv =
        must_pack(spec) ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1};
    return SearchSpace(
        {{"block_m", block_m, "query rows (of all heads of a group) a thread takes at a time"},
         {"block_n", {128, 256}, "keys between two updates of the softmax"},
         {"rows", {4, 6, 8, 12}, "register tile: keys (or columns of V) at a time"},
         {"vectors", {1, 2, 4}, "register tile: vectors of query rows at a time"},
         {"unroll", {1, 4}, "steps of the products' inner loops per iteration"},
         {"pack_kv", pack_kv,
          "1: copy blocks of K and V to contiguous fp32 first (always for K and V of 16 or 8 "
          "bits)"},
         {"schedule",
          {0, 1},
          "0: each thread has fixed tiles, 1: threads take tiles from a shared counter"}},
        {tile_fits(arch), whole_panels(arch, kMaxPanels)});
  }

  // Returns the cheapest config. Tries one register tile per panel width.
  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const int64_t rows_of_two = vector_registers(arch) == 32 ? 8 : 6;
    std::vector<Config> candidates = {config_for(spec, arch, shape, device, 12, 1),
                                      config_for(spec, arch, shape, device, rows_of_two, 2)};
    if (vector_registers(arch) == 32)
      candidates.push_back(config_for(spec, arch, shape, device, 4, 4));
    const auto cost = [&](const Config& c) { return predicted_cost(spec, arch, c, shape, device); };
    return *std::min_element(candidates.begin(), candidates.end(),
                             [&](const Config& a, const Config& b) { return cost(a) < cost(b); });
  }

  // Returns cycles of the busiest thread: multiply-adds including idle lanes, loads, packing, the
  // softmax, and the rounding of tiles to threads. 0.13 was fitted to times on a Zen 4 core.
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const double lanes = lanes_of(arch);
    const double rows = static_cast<double>(config.at("rows"));
    const double vectors = static_cast<double>(config.at("vectors"));
    const double block_m = static_cast<double>(config.at("block_m"));
    const double head_dims = spec.head_dim_qk + spec.head_dim_v;
    const double list_rows = static_cast<double>(shape.seqlen_q) * spec.gqa_ratio;
    const double panels = std::ceil(list_rows / (vectors * lanes)) /
                          std::ceil(list_rows / block_m);  // in a tile, on average
    const double keys = mean_visible_keys(spec, shape) +
                        (spec.mask != Mask::kNone ? vectors * lanes / spec.gqa_ratio / 2 : 0);

    // Multiply-adds per key and column, and a share of the loads (rows + vectors per tile step).
    const double step =
        (vectors + 0.13 * (1 + vectors / rows)) * (1.0 + (config.at("unroll") == 1 ? 0.01 : 0.0));
    const double per_key =
        head_dims * step + 12 * vectors +
        3 * spec.head_dim_v * vectors / static_cast<double>(config.at("block_n"));
    const double packing = config.at("pack_kv") != 0 ? 3 * head_dims / lanes : 0;
    const double tiles =
        std::ceil(list_rows / block_m) * static_cast<double>(shape.batch) * shape.num_heads_kv;
    const double rounds = config.at("schedule") != 0 && spec.mask != Mask::kNone
                              ? tiles / device.sm_count + 0.5
                              : std::ceil(tiles / device.sm_count);
    return rounds * (keys * (panels * per_key + packing) + panels * vectors * head_dims * 2);
  }

 private:
  int64_t scratch_bytes(const KernelSpec& spec, const Config& config) const override {
    const int64_t head_dims = spec.head_dim_qk + spec.head_dim_v;
    const int64_t kv = config.at("pack_kv") != 0 ? 4 * config.at("block_n") * head_dims : 128;
    return scratch_of(config, head_dims, kv);
  }
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return cpu_refusal(spec, arch);
  }

  // Returns a config with as many panels per tile as 128 rows hold, since they share a packed
  // block. But it keeps at least 64 tiles, and two per thread, so that threads are about evenly
  // busy.
  static Config config_for(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                           const DeviceFacts& device, int64_t rows, int64_t vectors) {
    const int64_t panel = vectors * lanes_of(arch);
    const int64_t all_rows = shape.batch * shape.num_heads_kv * shape.seqlen_q * spec.gqa_ratio;
    const int64_t least_tiles = std::max<int64_t>(64, int64_t{2} * device.sm_count);
    const int64_t rows_of_heads = spec.head_dim_qk + spec.head_dim_v > 256 ? 0 : kDefaultRows;
    int64_t panels = std::clamp<int64_t>(rows_of_heads / panel, kFewPanels, kMaxPanels);
    while (panels > 1 && all_rows / (panels * panel) < least_tiles) panels /= 2;
    return Config({{"block_m", panels * panel},
                   {"block_n", spec.head_dim_qk + spec.head_dim_v > 192 ? 128 : 256},
                   {"rows", rows},
                   {"vectors", vectors},
                   {"unroll", 4},
                   {"pack_kv", must_pack(spec) ? 1 : 0},
                   {"schedule", 1}});
  }
};

}  // namespace

const KernelTemplate& prefill_cpu() {
  static const PrefillCpu instance;
  return instance;
}

}  // namespace attune
