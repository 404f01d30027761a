// SPDX-License-Identifier: Apache-2.0
// prefill_sm80_tf32: fp32 operands on tensor cores through tf32, if less than fp32 arithmetic is
// asked for (accuracy fast or split). mma.sync and cp.async, every CUDA arch from sm_80 on. The
// kernel is templates/cuda/prefill_sm80_tf32/prefill_sm80_tf32.cu.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs: knobs and rules of prefill_mma.cpp, and pairs_rule().
// 3. default_config() returns the first legal tile of kFastTiles or kSplitTiles that gives a
//    multiprocessor enough warps, with narrower steps for score programs. Heads of more than 256
//    columns get the legal tile of wide_default() with the least cost (prefill_mma.cpp, cost.cpp).
// 4. structure() and sizes() return the launch of a config (prefill_mma.cpp).
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "generator/core/system/error.hpp"
#include "generator/families/prefill/mma/prefill_mma.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

// The tiles of a default, in the order they are tried. The first legal one that gives a
// multiprocessor kEnoughWarps is taken. Measured on an H200 at head dims 64 and 128; later rows are
// for other head dims and for GPUs with less shared memory.
struct DefaultTile {
  int widest_head_dim;
  int block_m, block_n, warps, kv_slots, q_place;
};
constexpr int kEnoughWarps = 8;
constexpr DefaultTile kFastTiles[] = {
    {64, 128, 64, 4, 2, kQRegisters}, {64, 128, 64, 4, 1, kQShared},
    {64, 64, 32, 4, 1, kQShared},     {128, 128, 48, 4, 1, kQShared},
    {128, 128, 32, 4, 1, kQShared},   {128, 64, 32, 4, 1, kQShared},
    {128, 64, 16, 4, 1, kQShared},    {256, 64, 32, 4, 1, kQShared},
    {256, 128, 32, 8, 1, kQShared},   {256, 64, 16, 4, 1, kQShared},
    {256, 128, 16, 8, 1, kQShared},   {256, 32, 16, 2, 1, kQShared},
};
// Three products need more registers, and shared memory reads are no limit: 16 rows per warp.
constexpr DefaultTile kSplitTiles[] = {
    {64, 128, 64, 4, 1, kQShared}, {64, 64, 32, 4, 1, kQShared},  {128, 64, 32, 4, 2, kQShared},
    {128, 64, 32, 4, 1, kQShared}, {128, 64, 16, 4, 1, kQShared}, {256, 64, 32, 4, 1, kQShared},
    {256, 64, 16, 4, 2, kQShared}, {256, 64, 16, 4, 1, kQShared}, {256, 32, 16, 2, 2, kQShared},
    {256, 32, 16, 2, 1, kQShared},
};

// Number of columns of V above which three products spill if a barrier is between Q K^T and P V
// (ptxas 13.0). Pairs of slots have no such barrier.
constexpr int kWidestSplitV = 128;
bool needs_pairs(const KernelSpec& slice) {
  return slice.fp8.accuracy == Accuracy::kSplit && slice.head_dim_v > kWidestSplitV;
}

Constraint pairs_rule(const KernelSpec& spec) {
  return {
      "pairs of slots", {}, [spec](const Config& config) -> std::optional<std::string> {
        const KernelSpec slice = slice_of(spec, config);
        const MmaConfig c = mma_config(config);
        if (!needs_pairs(slice) || (c.kv_slots > 1 && !c.share_kv)) return std::nullopt;
        return fmt::format(
            "{} columns of V in the mode split take all registers: use share_kv=0 and 2 kv_slots "
            "or more",
            slice.head_dim_v);
      }};
}

class PrefillSm80Tf32 final : public PrefillMma {
 public:
  std::string_view name() const override { return "prefill_sm80_tf32"; }
  std::string_view source_path() const override {
    return "cuda/prefill_sm80_tf32/prefill_sm80_tf32.cu";
  }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm80_tf32/prefill_sm80_tf32_knobs.cuh";
  }

  const Served& serves() const override { return serves_masks_and_accuracy(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Constraint> constraints = mma_constraints(spec, arch);
    if (spec.fp8.accuracy == Accuracy::kSplit) constraints.push_back(pairs_rule(spec));
    return SearchSpace(mma_async_knobs(spec), std::move(constraints));
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override {
    std::vector<Constant> constants = PrefillMma::extra_constants(spec, arch, config);
    constants.push_back(
        {"int", "kTf32Products", spec.fp8.accuracy == Accuracy::kSplit ? "3" : "1"});
    return constants;
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    if (has_wide_heads(spec))
      if (const auto config = wide_default(spec, arch, shape, device))
        return with_wide_room(spec, space(spec, arch), *config);
    if (auto config = default_of(spec, arch, shape)) return *config;
    throw Error(ErrorCode::kInternal, fmt::format("prefill_sm80_tf32 has no default for {} on {}",
                                                  to_text(spec), arch.name()));
  }

 private:
  std::optional<Config> default_of(const KernelSpec& spec, const Arch& arch,
                                   const Shape& shape) const {
    const SearchSpace legal = space(spec, arch);
    const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
    std::optional<Config> small;  // legal, but with few warps
    const bool split = spec.fp8.accuracy == Accuracy::kSplit;
    for (const DefaultTile& tile : split ? std::span<const DefaultTile>(kSplitTiles)
                                         : std::span<const DefaultTile>(kFastTiles)) {
      if (widest > tile.widest_head_dim || (shape.seqlen_q <= 64 && tile.block_m > 64)) continue;
      const auto config = with_most_blocks(legal, {{"block_m", tile.block_m},
                                                   {"block_n", tile.block_n},
                                                   {"warps", tile.warps},
                                                   {"kv_slots", tile.kv_slots},
                                                   {"q_place", tile.q_place}});
      if (config && config->at("warps") * config->at("blocks_per_sm") >= kEnoughWarps)
        return with_room(spec, legal, *config);
      if (config && !small) small = config;
    }
    if (small) return with_room(spec, legal, *small);
    return std::nullopt;
  }

  static Config with_room(const KernelSpec& spec, const SearchSpace& legal, const Config& config) {
    return is_scored(spec) ? with_room_for_scores(legal, config, 32) : config;
  }

  // Three products of more than 256 columns leave room for few keys per step (ptxas 13.0).
  static Config with_wide_room(const KernelSpec& spec, const SearchSpace& legal,
                               const Config& config) {
    if (spec.fp8.accuracy != Accuracy::kSplit) return with_room(spec, legal, config);
    return with_room_for_scores(legal, config, is_scored(spec) || spec.head_dim_qk > 512 ? 16 : 32);
  }

  // Returns the bytes of shared memory of the smallest default tile.
  static int least_shared_bytes(const KernelSpec& spec) {
    constexpr int kMostSlices = 8;
    Config config;
    if (has_wide_v(spec)) config.set("v_slices", kMostSlices);
    const KernelSpec slice = slice_of(spec, config);
    return prefill_sm80_shared_bytes({32, 16, 2, needs_pairs(slice) ? 2 : 1, 0, kQShared,
                                      slice.head_dim_qk, slice.head_dim_v, 4});
  }

  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability < 80)
      return fmt::format("{} has no mma.sync of tf32; this template serves sm_80 and later",
                         arch.name());
    if (spec.dtype_q != Dtype::kFp32)
      return fmt::format("dtype is {}; this template serves fp32", dtype_name(spec.dtype_q));
    if (spec.fp8.accuracy == Accuracy::kAccurate)
      return "accuracy is accurate (fp32 arithmetic); this template serves fast (tf32) and split "
             "(each number as the sum of two tf32 numbers)";
    if (auto reason = mma_refusal(spec)) return reason;
    const int bytes = least_shared_bytes(spec);
    if (bytes > arch.shared_bytes_per_block)
      return fmt::format(
          "head_dim_qk is {} and head_dim_v is {}; the smallest fp32 tiles take {} bytes of shared "
          "memory, and a block on {} has {}",
          spec.head_dim_qk, spec.head_dim_v, bytes, arch.name(), arch.shared_bytes_per_block);
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& prefill_sm80_tf32() {
  static const PrefillSm80Tf32 instance;
  return instance;
}

}  // namespace attune
