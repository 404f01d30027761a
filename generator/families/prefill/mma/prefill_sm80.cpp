// SPDX-License-Identifier: Apache-2.0
// prefill_sm80: mma.sync and cp.async, for fp16 and bf16 on every CUDA arch from sm_80 on. The
// kernel is templates/cuda/prefill_sm80/prefill_sm80.cu.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs; prefill_mma.cpp has their knobs and rules.
// 3. default_config() returns the first legal tile of kDefaultTiles that gives a multiprocessor
//    enough warps. For score programs and dropout, with_room() leaves it more registers. Heads of
//    more than 256 columns get the legal tile of wide_default() with the least cost (cost.cpp).
// 4. structure() and sizes() return the launch of a config (prefill_mma.cpp).
// The tuner reads space() and predicted_cost() (cost.cpp) instead, and times what it finds.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/error.hpp"
#include "generator/families/prefill/mma/prefill_mma.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

// The tiles of a default, in the order they are tried; the first legal one is taken.
struct DefaultTile {
  int widest_head_dim;
  int block_m, block_n, warps, kv_slots, hold_offsets;
};

// Measured on an H200 at head dims 64, 128 and 256; in between, tiles that ptxas 13.0 compiles
// without spills. Later rows are for GPUs with less shared memory: a multiprocessor should hold
// kEnoughWarps.
constexpr int kEnoughWarps = 8;
constexpr DefaultTile kDefaultTiles[] = {
    {56, 128, 64, 4, 2, 0},  {56, 128, 64, 4, 1, 0},                            //
    {64, 128, 64, 4, 2, 1},  {64, 128, 64, 4, 1, 1},                            //
    {112, 128, 64, 4, 2, 0}, {112, 128, 64, 4, 1, 0}, {120, 128, 32, 4, 2, 1},  //
    {128, 128, 64, 4, 2, 0}, {128, 128, 64, 4, 1, 0}, {128, 128, 32, 4, 1, 1},  //
    {256, 64, 64, 4, 1, 1},  {256, 128, 64, 8, 1, 1}, {256, 128, 32, 8, 1, 1},
    {256, 64, 32, 4, 1, 1},
};

// True if offsets are recomputed. With limits on both sides registers run out: ptxas 13.0 spills on
// sm_89 and sm_90 if offsets are recomputed, and on other archs if they are kept.
bool makes_offsets_anew(const KernelSpec& spec, const Arch& arch, const DefaultTile& tile) {
  const bool limited_right = spec.mask != Mask::kNone || spec.window_right >= 0;
  const bool holds_more = arch.compute_capability == 89 || arch.compute_capability == 90;
  return tile.hold_offsets == 0 || (spec.window_left >= 0 && limited_right && !holds_more);
}

class PrefillSm80 final : public PrefillMma {
 public:
  std::string_view name() const override { return "prefill_sm80"; }
  std::string_view source_path() const override { return "cuda/prefill_sm80/prefill_sm80.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm80/prefill_sm80_knobs.cuh";
  }

  const Served& serves() const override { return serves_masks_and_dropout(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return SearchSpace(mma_async_knobs(spec), mma_constraints(spec, arch));
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const SearchSpace legal = space(spec, arch);
    if (has_wide_heads(spec))
      if (const auto config = wide_default(spec, arch, shape, device))
        return with_room(spec, legal, *config);
    const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
    std::optional<Config> small;  // legal, but with few warps
    for (const DefaultTile& tile : kDefaultTiles) {
      if (widest > tile.widest_head_dim ||
          (shape.seqlen_q <= 64 && tile.block_m > 64 && widest <= 128))
        continue;
      const auto config = with_tile(legal, tile, makes_offsets_anew(spec, arch, tile));
      if (config && config->at("warps") * config->at("blocks_per_sm") >= kEnoughWarps)
        return with_room(spec, legal, *config);
      if (config && !small) small = config;
    }
    if (small) return with_room(spec, legal, *small);
    throw Error(ErrorCode::kInternal, fmt::format("prefill_sm80 has no default for {} on {}",
                                                  to_text(spec), arch.name()));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability < 80)
      return fmt::format("{} has no cp.async; this template serves sm_80 and later", arch.name());
    if (spec.dtype_q != Dtype::kFp16 && spec.dtype_q != Dtype::kBf16)
      return fmt::format("dtype is {}; this template serves fp16 and bf16",
                         dtype_name(spec.dtype_q));
    return mma_refusal(spec);
  }

  // Up to this head dim at least three blocks fit a multiprocessor. They leave dropout signs no
  // room with 64 columns, or with 32 rows per warp. Window limits take that room for wider heads.
  static constexpr int kHeadDimOf3Blocks = 64;

  // Addresses of several biases leave a warp room for 16 rows, not 32. With one stage a fourth
  // block would fit a multiprocessor, and leave each thread 128 registers. Both spill.
  static Config with_room(const KernelSpec& spec, const SearchSpace& legal, const Config& config) {
    const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
    const bool drops = spec.dropout > 0;
    const bool roomy = widest > kHeadDimOf3Blocks && spec.window_left < 0;
    if (!is_scored(spec) && roomy && drops) return with_room_for_signs(legal, config);
    if (!is_scored(spec) && !drops) return config;
    if (reads_several_elements(spec)) {
      Config staged = config;
      staged.set("kv_slots", 2);
      Config lower = with_room_for_scores(legal, staged, 32, 64);
      if (!legal.broken(lower)) return lower;
    }
    const int widest_of_16_rows = is_scored(spec) ? kHeadDimOf3Blocks : kHeadDimOf3Blocks - 1;
    const bool crowded = drops && widest <= widest_of_16_rows;
    Config roomier = with_room_for_scores(legal, config, 32, crowded ? 64 : INT64_MAX);
    // Dropout signs with both window limits spill if four blocks leave a thread 128 registers.
    if (drops && widest > kHeadDimOf3Blocks && roomier.at("blocks_per_sm") > 3) {
      Config staged = roomier;
      staged.set("kv_slots", 2);
      staged.set("blocks_per_sm", 3);
      if (!legal.broken(staged)) return staged;
      return with_room_for_signs(legal, roomier);
    }
    return roomier;
  }

  // Dropout signs lack registers with 128 x 64 elements at head dim 128, and with four blocks of 64
  // x 32.
  static Config with_room_for_signs(const SearchSpace& legal, const Config& config) {
    if (config.at("block_m") * config.at("block_n") < 128 * 64 && config.at("blocks_per_sm") <= 3)
      return config;
    Config square = config;
    square.set("block_m", 64);
    square.set("block_n", 64);
    for (const int64_t kv_slots : {config.at("kv_slots"), int64_t{1}})
      for (const int64_t blocks : {3, 2})
        for (const int64_t held : {0, 1}) {
          square.set("kv_slots", kv_slots);
          square.set("blocks_per_sm", blocks);
          square.set("hold_offsets", held);
          if (!legal.broken(square)) return square;
        }
    return config;
  }

  // Returns a legal config with this tile, if any. Also tries held offsets, which are legal if
  // registers are spare.
  static std::optional<Config> with_tile(const SearchSpace& legal, const DefaultTile& tile,
                                         bool offsets_anew) {
    for (int hold_offsets = offsets_anew ? 0 : 1; hold_offsets <= 1; ++hold_offsets)
      if (auto config = with_most_blocks(legal, {{"block_m", tile.block_m},
                                                 {"block_n", tile.block_n},
                                                 {"warps", tile.warps},
                                                 {"kv_slots", tile.kv_slots},
                                                 {"hold_offsets", hold_offsets}}))
        return config;
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& prefill_sm80() {
  static const PrefillSm80 instance;
  return instance;
}

}  // namespace attune
