// SPDX-License-Identifier: Apache-2.0
// Search space and defaults of prefill_sm80; see prefill_sm80.hpp. Rules and launch are those of
// prefill_mma.hpp.
#include "generator/families/prefill_sm80.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/error.hpp"
#include "generator/families/prefill_mma.hpp"

namespace attune {
namespace {

// What a default may choose, in the order it is tried; the first legal one is taken.
struct DefaultTile {
  int widest_head_dim;
  int block_m, block_n, warps, stages, hold_offsets;
};

// From measurements on an H200. Later rows are for parts with less shared memory: a multiprocessor
// should hold kEnoughWarps.
constexpr int kEnoughWarps = 8;
constexpr DefaultTile kDefaultTiles[] = {
    {64, 128, 64, 4, 2, 1},  {64, 128, 64, 4, 1, 1},  //
    {128, 128, 64, 4, 2, 0}, {128, 128, 64, 4, 2, 1}, {128, 128, 64, 4, 1, 0},
    {128, 128, 64, 4, 1, 1}, {128, 128, 32, 4, 1, 1},  //
    {256, 64, 64, 4, 1, 1},  {256, 128, 64, 8, 1, 1}, {256, 128, 32, 8, 1, 1},
    {256, 64, 32, 4, 1, 1},
};

// Three blocks of 128x64 leave no register to spare at head dim 64: with limits on both sides,
// ptxas 13.0 spills on sm_80 to sm_86 unless offsets are made anew, and on sm_90 if they are.
bool makes_offsets_anew(const KernelSpec& spec, const Arch& arch, const DefaultTile& tile) {
  const bool limited_right = spec.mask != Mask::kNone || spec.window_right >= 0;
  return tile.hold_offsets == 0 || (tile.widest_head_dim == 64 && arch.compute_capability < 89 &&
                                    spec.window_left >= 0 && limited_right);
}

class PrefillSm80 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "prefill_sm80"; }
  std::string_view source_path() const override { return "cuda/prefill_sm80.cu"; }
  std::string_view knobs_path() const override { return "cuda/prefill_sm80_knobs.cuh"; }

  std::optional<std::string> refuses(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability < 80)
      return fmt::format("{} has no cp.async; it serves sm_80 and later", arch.name());
    if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
      return fmt::format("dtype is {}; it serves fp16 and bf16", dtype_name(spec.dtype_q));
    return mma_refusal(spec);
  }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Knob> knobs = mma_tile_knobs(spec);
    knobs.push_back({"stages",
                     {1, 2, 3, 4, 5},
                     "slots of the ring for K and for V (share_kv=1: for both together)"});
    for (Knob& knob : mma_schedule_knobs(spec)) knobs.push_back(std::move(knob));
    knobs.push_back(
        {"hold_offsets",
         {1, 0},
         "1: ldmatrix offsets stay in registers; 0: made anew for each block of columns"});
    knobs.push_back(
        {"load_hint", {128, 0}, "bytes around a load that L2 fetches; 0 is its own choice"});
    return SearchSpace(std::move(knobs), mma_constraints(spec, arch));
  }

  Config default_config(const KernelSpec& spec, const Arch& arch,
                        const Shape& shape) const override {
    const SearchSpace legal = space(spec, arch);
    const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
    std::optional<Config> small;  // legal, but few warps
    for (const DefaultTile& tile : kDefaultTiles) {
      if (widest > tile.widest_head_dim ||
          (shape.seqlen_q <= 64 && tile.block_m > 64 && widest <= 128))
        continue;
      const auto config = with_most_blocks(legal, spec, arch, tile);
      if (config && config->at("warps") * config->at("min_blocks") >= kEnoughWarps) return *config;
      if (config && !small) small = config;
    }
    if (small) return *small;
    throw Error(ErrorCode::kInternal, fmt::format("prefill_sm80 has no default for {} on {}",
                                                  to_text(spec), arch.name()));
  }

  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    return mma_resources(spec, arch, mma_config(config));
  }
  LaunchPlan launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    return mma_launch(spec, mma_config(config), shape, device);
  }
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return mma_predicted_cost(spec, arch, mma_config(config), shape, device);
  }

 private:
  // min_blocks follows from the tile: the one value that the space accepts.
  static std::optional<Config> with_most_blocks(const SearchSpace& legal, const KernelSpec& spec,
                                                const Arch& arch, const DefaultTile& t) {
    for (int min_blocks = 1; min_blocks <= 4; ++min_blocks) {
      Config config({{"block_m", t.block_m},
                     {"block_n", t.block_n},
                     {"warps", t.warps},
                     {"stages", t.stages},
                     {"share_kv", 0},
                     {"q_place", kQShared},
                     {"min_blocks", min_blocks},
                     {"persistent", 0},
                     {"tile_order", tiles_differ_in_length(spec) ? 1 : 0},
                     {"hold_offsets", makes_offsets_anew(spec, arch, t) ? 0 : 1},
                     {"load_hint", 128}});
      if (!legal.broken(config)) return config;
    }
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& prefill_sm80() {
  static const PrefillSm80 instance;
  return instance;
}

}  // namespace attune
