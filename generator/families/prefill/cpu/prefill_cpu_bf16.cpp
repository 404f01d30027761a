// SPDX-License-Identifier: Apache-2.0
// prefill_cpu_bf16: the kernel prefill_cpu.cpp with products of pairs of bf16
// (templates/cpu/prefill/pair_products.hpp), on CPUs with AMX or AVX512_BF16. Serves q, k and v of
// bf16. The knob `tiles` chooses between both instructions.
//
// Default configs never choose this family: see fit(). The tuner tries it, since it checks results
// before it measures.
#include "generator/families/prefill/cpu/prefill_on_cpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/problem/arch.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

constexpr int64_t kTileRows = 16, kTileColumns = 32;
constexpr int64_t kMostPanels = 16;
constexpr int64_t kRowsAtATime = 8;  // of a product without tiles

int64_t whole(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
int64_t width_qk(const KernelSpec& spec) { return whole(spec.head_dim_qk, kTileColumns); }
int64_t width_v(const KernelSpec& spec) { return whole(spec.head_dim_v, kTileRows); }

Constraint panels_of_tiles(const Arch& arch) {
  return {"panels of tiles",
          {"vectors", "tiles"},
          [lanes = lanes_of(arch)](const Config& config) -> std::optional<std::string> {
            const int64_t rows = config.at("vectors") * lanes;
            if (config.at("tiles") == 0 || rows == kTileRows || rows == 2 * kTileRows)
              return std::nullopt;
            return fmt::format(
                "vectors is {}, which gives panels of {} rows; panels of tiles must have 16 or 32",
                config.at("vectors"), rows);
          }};
}

class PrefillCpuBf16 final : public PrefillOnCpu {
 public:
  std::string_view name() const override { return "prefill_cpu_bf16"; }
  const Served& serves() const override { return serves_masks_and_dropout(); }

  // No processor with these instructions was at hand: results were checked with emulated
  // instructions, and nothing was timed. So defaults leave the choice to the tuner.
  Fit fit(const KernelSpec&, const Shape&) const override { return Fit::kPoorly; }

  SearchSpace space(const KernelSpec&, const Arch& arch) const override {
    const int64_t lanes = lanes_of(arch);
    std::vector<int64_t> block_m, tiles;
    for (const int64_t vectors : {1, 2, 4, 8, 16, 32}) block_m.push_back(vectors * lanes);
    if (has_bf16_tiles(arch)) tiles.push_back(1);
    if (has_bf16_pairs(arch)) tiles.push_back(0);
    if (tiles.empty()) tiles = {1, 0};  // for pages that describe knobs; refusal() says no
    return SearchSpace(
        {{"block_m", block_m, "query rows (of all heads of a group) a thread takes at a time"},
         {"block_n", {128, 64, 256}, "keys between two updates of the softmax"},
         {"vectors", {2, 1, 4}, "vectors of query rows at a time"},
         {"tiles", tiles, "1: products by AMX, 0: by AVX512_BF16"},
         {"schedule",
          {1, 0},
          "0: each thread has fixed tiles, 1: threads take tiles from a shared counter"}},
        {whole_panels(arch, kMostPanels), panels_of_tiles(arch)});
  }

  // Returns a config with AMX where the CPU has it, and panels of 32 rows. A tile has as many
  // panels as 256 rows hold, since they share packed blocks, but each thread gets two tiles or
  // more.
  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const int64_t panel = 2 * kTileRows;
    const int64_t lists = shape.batch * shape.num_heads_kv;
    const int64_t rows = shape.seqlen_q * spec.gqa_ratio;
    int64_t block_m = 8 * panel;
    while (block_m > panel && lists * ((rows + block_m - 1) / block_m) < 2 * device.sm_count)
      block_m /= 2;
    return Config({{"block_m", block_m},
                   {"block_n", width_qk(spec) + width_v(spec) > 192 ? 128 : 256},
                   {"vectors", panel / lanes_of(arch)},
                   {"tiles", has_bf16_tiles(arch) ? 1 : 0},
                   {"schedule", 1}});
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override {
    std::vector<Constant> all = PrefillOnCpu::extra_constants(spec, arch, config);
    all.push_back(bool_constant("kPairs", true));
    all.push_back({"int", "kRows", std::to_string(kRowsAtATime)});
    all.push_back({"int", "kUnroll", "1"});
    all.push_back({"int", "kPackKv", "1"});
    return all;
  }

  // Returns an estimate in the unit of prefill_cpu, the time of a multiply-add of registers. The
  // rates are those of the manuals: two multiply-adds a cycle, a product of tiles in 16 cycles.
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const double vectors = static_cast<double>(config.at("vectors"));
    const double block_m = static_cast<double>(config.at("block_m"));
    const double panel = vectors * lanes_of(arch);
    const double widths = static_cast<double>(width_qk(spec) + width_v(spec));
    const double list_rows = static_cast<double>(shape.seqlen_q) * spec.gqa_ratio;
    const double in_list = std::ceil(list_rows / block_m);
    const double panels = std::ceil(list_rows / panel) / in_list;  // in a tile, on average
    const double keys = mean_visible_keys(spec, shape) +
                        (spec.mask != Mask::kNone ? panel / spec.gqa_ratio / 2 : 0);
    // Across one row of tiles, K and V are loaded anew for each 16 rows instead of 32.
    const double by_tiles = panel / kTileRows * widths / 16 * (panel > kTileRows ? 1 : 1.2);
    const double product = config.at("tiles") != 0 ? by_tiles : widths * vectors;
    const double softmax =
        (16 + 2.0 * spec.head_dim_v / static_cast<double>(config.at("block_n"))) * vectors;
    const double packing = 5 * widths / lanes_of(arch);
    const double tiles = in_list * static_cast<double>(shape.batch) * shape.num_heads_kv;
    const double rounds = config.at("schedule") != 0 && spec.mask != Mask::kNone
                              ? tiles / device.sm_count + 0.5
                              : std::ceil(tiles / device.sm_count);
    return rounds * (keys * (panels * (product + softmax) + packing) + panels * vectors * widths);
  }

 private:
  int64_t scratch_bytes(const KernelSpec& spec, const Config& config) const override {
    constexpr int64_t kGaps = 128;  // before K and V, which begin at whole cache lines
    const int64_t kv = 2 * config.at("block_n") * (width_qk(spec) + width_v(spec));
    return scratch_of(config, width_qk(spec) / 2 + width_v(spec), kv + kGaps);
  }
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = cpu_refusal(spec, arch)) return reason;
    for (const auto& [what, dtype] :
         {std::pair{"dtype", spec.dtype_q}, std::pair{"dtype_kv", spec.dtype_kv}})
      if (dtype != Dtype::kBf16)
        return fmt::format("{} is {}; this template serves bf16", what, dtype_name(dtype));
    if (!has_bf16_tiles(arch) && !has_bf16_pairs(arch))
      return fmt::format("{} has neither AMX (amx-tile, amx-bf16) nor AVX512_BF16", arch.name());
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& prefill_cpu_bf16() {
  static const PrefillCpuBf16 instance;
  return instance;
}

}  // namespace attune
