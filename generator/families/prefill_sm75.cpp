// SPDX-License-Identifier: Apache-2.0
// Search space and defaults of prefill_sm75; see prefill_sm75.hpp. Rules and launch are those of
// prefill_mma.hpp.
#include "generator/families/prefill_sm75.hpp"

#include <fmt/format.h>

#include "generator/core/error.hpp"
#include "generator/families/prefill_mma.hpp"

namespace attune {
namespace {

// The tiles a default may choose, in the order they are tried; the first legal one is taken. Not
// measured: reasoned from registers and the 64 KB of shared memory of a Turing multiprocessor.
struct DefaultTile {
  int block_m, block_n, warps, share_kv, q_place;
};
constexpr DefaultTile kDefaultTiles[] = {
    {64, 64, 4, 0, kQRegistersThroughRing},
    {64, 64, 4, 0, kQShared},
    {64, 32, 4, 0, kQShared},
    {64, 16, 4, 0, kQShared},
};

class PrefillSm75 final : public KernelTemplate {
 public:
  std::string_view name() const override { return "prefill_sm75"; }
  std::string_view source_path() const override { return "cuda/prefill_sm75.cu"; }
  std::string_view knobs_path() const override { return "cuda/prefill_sm75_knobs.cuh"; }

  std::optional<std::string> refuses(const KernelSpec& spec, const Arch& arch) const override {
    if (arch.target != Target::kCuda || arch.compute_capability != 75)
      return fmt::format("{} is not sm_75, which alone it serves", arch.name());
    if (spec.dtype_q != Dtype::kFp16)
      return fmt::format("dtype is {}; it serves fp16", dtype_name(spec.dtype_q));
    return mma_refusal(spec);
  }

  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    std::vector<Knob> knobs = mma_tile_knobs(spec);
    for (Knob& knob : mma_schedule_knobs(spec)) knobs.push_back(std::move(knob));
    return SearchSpace(std::move(knobs), mma_constraints(spec, arch));
  }

  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape&) const override {
    const SearchSpace legal = space(spec, arch);
    for (const DefaultTile& tile : kDefaultTiles)
      if (auto config = with_most_blocks(legal, spec, tile)) return *config;
    throw Error(ErrorCode::kInternal,
                fmt::format("prefill_sm75 has no default for {}", to_text(spec)));
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
                                                const DefaultTile& t) {
    for (int min_blocks = 1; min_blocks <= 4; ++min_blocks) {
      Config config({{"block_m", t.block_m},
                     {"block_n", t.block_n},
                     {"warps", t.warps},
                     {"share_kv", t.share_kv},
                     {"q_place", t.q_place},
                     {"min_blocks", min_blocks},
                     {"persistent", 0},
                     {"tile_order", tiles_differ_in_length(spec) ? 1 : 0}});
      if (!legal.broken(config)) return config;
    }
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& prefill_sm75() {
  static const PrefillSm75 instance;
  return instance;
}

}  // namespace attune
