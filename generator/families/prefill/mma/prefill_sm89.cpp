// SPDX-License-Identifier: Apache-2.0
// prefill_sm89: attention with mma.sync over e4m3 queries and e4m3 or e5m2 keys and values, from
// sm_89 on. The kernel is templates/cuda/prefill_sm89/prefill_sm89.cu.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs: knobs and rules of prefill_mma.cpp, knobs flush and unpack,
//    and arithmetic_rule().
// 3. default_config() returns the first legal tile of kDefaultTiles for which ptxas has registers,
//    with narrower steps for score programs.
// 4. structure() and sizes() return the launch of a config (prefill_mma.cpp).
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/error.hpp"
#include "generator/families/prefill/mma/prefill_mma.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

// True if the tensor cores multiply 8 bits themselves, summing with fewer bits than fp32. Elsewhere
// mma.sync first unpacks to fp16.
bool multiplies_8_bits(const Arch& arch) {
  return arch.compute_capability < 90 || arch.compute_capability >= 120;
}

// The tiles of a default, in the order they are tried; the first legal one is taken. They are the
// best tiles for 16 bits, with the slots that half as many bytes allow. GPUs with 8-bit tensor
// cores (sm_89, sm_120) were not measured.
struct DefaultTile {
  int narrowest_head_dim, widest_head_dim;
  int block_m, block_n, warps, kv_slots, hold_offsets;
};
constexpr DefaultTile kDefaultTiles[] = {
    {0, 64, 128, 64, 4, 3, 1},   {0, 64, 128, 64, 4, 2, 1},  //
    {65, 128, 128, 64, 4, 2, 0}, {0, 128, 64, 64, 4, 2, 1},  //
    {129, 256, 64, 64, 4, 1, 1}, {129, 256, 64, 32, 4, 2, 1}, {129, 256, 64, 32, 4, 1, 1},
};

// True if ptxas 13.0 finds registers for the tile. Beyond head dim 64 the tiles with the most
// elements leave none for fp16 fragments, for sums on their way to O (flush), or for more. Seen in
// kernels compiled for sm_89, sm_90, sm_100 and sm_120.
bool has_registers(const DefaultTile& tile, const KernelSpec& spec, const Arch& arch, int widest) {
  const bool factors = spec.fp8.scale_block_kv > 0;
  const bool own = multiplies_8_bits(arch);
  const bool flushes = own && spec.fp8.accuracy == Accuracy::kAccurate;
  if (tile.block_m == 32 * tile.warps && widest > 64) {
    if (!own || spec.fp8.v_layout == VLayout::kTransposed) return false;
    return !flushes || (widest > 112 && !factors);
  }
  if (tile.block_n == 64 && widest > 192) return own ? !flushes : !factors;
  return true;
}

std::vector<int64_t> flush_values(const KernelSpec& spec, const Arch& arch) {
  if (spec.fp8.accuracy == Accuracy::kFast) return {0};
  return multiplies_8_bits(arch) ? std::vector<int64_t>{1} : std::vector<int64_t>{0, 1};
}

// If products are made in fp16, the other forms exist only for comparison: one at a time, with the
// plain schedule.
std::optional<std::string> arithmetic_rule(const Config& config) {
  const int64_t forms = config.at("flush") + 1 - config.at("unpack");
  const bool plain = config.at("share_kv") == 0 && config.at("q_place") == kQShared &&
                     config.at("load_hint") == 128;
  if (forms == 0 || (forms == 1 && plain)) return std::nullopt;
  return "flush=1 or unpack=0 is tried alone, with share_kv and q_place 0 and load_hint 128";
}

class PrefillSm89 final : public PrefillMma {
 public:
  std::string_view name() const override { return "prefill_sm89"; }
  std::string_view source_path() const override { return "cuda/prefill_sm89/prefill_sm89.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm89/prefill_sm89_knobs.cuh";
  }

  const Served& serves() const override { return serves_masks_and_8_bits(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Knob> knobs = mma_async_knobs(spec);
    knobs.push_back({"flush", flush_values(spec, arch),
                     "1: products with V are added up in fp32 registers, 0: by the tensor cores"});
    knobs.push_back({"unpack",
                     multiplies_8_bits(arch) ? std::vector<int64_t>{0} : std::vector<int64_t>{1, 0},
                     "1: 8-bit fragments become fp16 before mma.sync, 0: mma.sync takes them"});
    std::vector<Constraint> constraints = mma_constraints(spec, arch);
    if (!multiplies_8_bits(arch)) constraints.push_back({"arithmetic", {}, arithmetic_rule});
    return SearchSpace(std::move(knobs), std::move(constraints));
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts&) const override {
    const SearchSpace legal = space(spec, arch);
    const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
    for (const DefaultTile& tile : kDefaultTiles) {
      const bool few_rows = shape.seqlen_q <= 64 && tile.block_m > 64;
      if (widest < tile.narrowest_head_dim || widest > tile.widest_head_dim || few_rows ||
          !has_registers(tile, spec, arch, widest))
        continue;
      if (auto config = with_most_blocks(legal, {{"block_m", tile.block_m},
                                                 {"block_n", tile.block_n},
                                                 {"warps", tile.warps},
                                                 {"kv_slots", tile.kv_slots},
                                                 {"hold_offsets", tile.hold_offsets}}))
        return is_scored(spec) ? with_room_for_scores(legal, *config, 32) : *config;
    }
    throw Error(ErrorCode::kInternal, fmt::format("prefill_sm89 has no default for {} on {}",
                                                  to_text(spec), arch.name()));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability < 89)
      return fmt::format("{} has no mma.sync of 8-bit floats; this template serves sm_89 and later",
                         arch.name());
    if (spec.dtype_q != Dtype::kE4m3 || !is_8_bit(spec.dtype_kv))
      return fmt::format("q is {} and k and v are {}; this template serves e4m3 with e4m3 or e5m2",
                         dtype_name(spec.dtype_q), dtype_name(spec.dtype_kv));
    if (spec.dtype_o != Dtype::kFp16 && spec.dtype_o != Dtype::kBf16)
      return fmt::format("o is {}; this template serves fp16 and bf16", dtype_name(spec.dtype_o));
    return mma_refusal(spec);
  }
};

}  // namespace

const KernelTemplate& prefill_sm89() {
  static const PrefillSm89 instance;
  return instance;
}

}  // namespace attune
