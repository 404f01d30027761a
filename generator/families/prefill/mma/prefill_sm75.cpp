// SPDX-License-Identifier: Apache-2.0
// prefill_sm75: the Turing form of prefill_sm80 (m16n8k8, plain loads); sm_75, fp16. The kernel is
// templates/cuda/prefill_sm75/prefill_sm75.cu.
//
// How a config is chosen for a problem:
// 1. refusal() returns why the family does not serve the spec, or nullopt.
// 2. space() returns the legal configs; prefill_mma.cpp has their knobs and rules.
// 3. default_config() returns the first legal tile of kDefaultTiles, with narrower steps for score
//    programs (prefill_parts.hpp). Heads of more than 256 columns get the legal tile of
//    wide_default() with the least cost (prefill_mma.cpp, cost.cpp).
// 4. structure() and sizes() return the launch of a config (prefill_mma.cpp).
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "generator/families/prefill/mma/prefill_mma.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

// The tiles of a default, in the order they are tried; the first legal one is taken. Not measured:
// they follow from registers and the 64 KB of shared memory of a Turing multiprocessor.
struct DefaultTile {
  int block_m, block_n, warps, q_place;
};
constexpr DefaultTile kDefaultTiles[] = {
    {64, 64, 4, kQRegistersThroughRing},
    {64, 64, 4, kQShared},
    {64, 32, 4, kQShared},
    {64, 16, 4, kQShared},
};

class PrefillSm75 final : public PrefillMma {
 public:
  std::string_view name() const override { return "prefill_sm75"; }
  std::string_view source_path() const override { return "cuda/prefill_sm75/prefill_sm75.cu"; }
  std::string_view knobs_path() const override {
    return "cuda/prefill_sm75/prefill_sm75_knobs.cuh";
  }

  const Served& serves() const override { return serves_masks(); }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Knob> knobs = mma_tile_knobs(spec);
    for (Knob& knob : mma_schedule_knobs(spec)) knobs.push_back(std::move(knob));
    return SearchSpace(std::move(knobs), mma_constraints(spec, arch));
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    const SearchSpace legal = space(spec, arch);
    if (has_wide_heads(spec))
      if (const auto config = wide_default(spec, arch, shape, device))
        return is_scored(spec) ? with_room_for_scores(legal, *config, 32) : *config;
    for (const DefaultTile& tile : kDefaultTiles)
      if (auto config = with_most_blocks(legal, {{"block_m", tile.block_m},
                                                 {"block_n", tile.block_n},
                                                 {"warps", tile.warps},
                                                 {"q_place", tile.q_place}}))
        return is_scored(spec) ? with_room_for_scores(legal, *config, 32) : *config;
    throw Error(ErrorCode::kInternal,
                fmt::format("prefill_sm75 has no default for {}", to_text(spec)));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability != 75)
      return fmt::format("{} is not sm_75; this template serves only sm_75", arch.name());
    if (spec.dtype_q != Dtype::kFp16)
      return fmt::format("dtype is {}; this template serves fp16", dtype_name(spec.dtype_q));
    return mma_refusal(spec);
  }
};

}  // namespace

const KernelTemplate& prefill_sm75() {
  static const PrefillSm75 instance;
  return instance;
}

}  // namespace attune
