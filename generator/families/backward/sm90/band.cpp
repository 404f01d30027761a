// SPDX-License-Identifier: Apache-2.0
// backward_sm90_band: one kernel walks along the narrow band of a window, with every gradient in
// registers. It needs no workspace, and has no knobs. Source:
// templates/cuda/backward_sm90/band/. fit() refuses shapes whose band is wider than three tiles.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/backward/sm90/gradients_sm90.hpp"
#include "generator/render/wgmma_emitter.hpp"
#include "templates/shared/layouts/backward_band_layout.h"

namespace attune {
namespace {

// Returns the number of places along the band (backward_band_layout.h), over all heads and batch
// entries.
int64_t places_of(const KernelSpec& spec, const Shape& shape) {
  return band_places(spec, shape).count * shape.num_heads_q * shape.batch;
}

class Band final : public GradientsSm90 {
 public:
  Band() : GradientsSm90("backward_sm90_band", "band", {}) {}

  SearchSpace space(const KernelSpec&, const Arch&) const override { return {{}, {}}; }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return {};
  }

  // Scores and dP of a step, or their rounded form, are held besides dK, dV and two tiles of dQ.
  std::vector<BackwardKernel> kernels(const KernelSpec& spec, const Config&) const override {
    const int qk = spec.head_dim_qk, v = spec.head_dim_v;
    return {{.makes = BackwardMakes::kBand,
             .tile = {kBandWalkers * kBandTile, kBandTile, kBandRowSlots, kBandRowSlots, qk, v,
                      true, true},
             .accumulators = kBandTile + (3 * qk + v) / 2,
             .widest = std::max({kBandTile, qk, v})}};
  }

  Fit fit(const KernelSpec& spec, const Shape& shape) const override {
    return band_fits(spec, shape) ? Fit::kWell : Fit::kNever;
  }
  std::optional<std::string> unfit(const KernelSpec& spec, const Config&,
                                   const Shape& shape) const override {
    if (band_fits(spec, shape)) return std::nullopt;
    return fmt::format(
        "the band has three tiles of {} keys for {} rows; a window of {}:{} needs four if key {} "
        "is on the first row's diagonal",
        kBandTile, kBandTile, band_width(spec).left, band_width(spec).right,
        first_diagonal(spec, shape));
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts& device) const override {
    return band_clocks(places_of(spec, shape), device);
  }

  std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                        const Config&) const override {
    std::vector<Constant> all = gradient_constants();
    for (const char* name : {"kBlockM", "kKeyBlockM"})
      all.push_back({"int", name, std::to_string(kBandTile)});
    return all;
  }

  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch&,
                                             const Config&) const override {
    const int qk = spec.head_dim_qk, v = spec.head_dim_v;
    return {{"generated/wgmma.cuh",
             emit_wgmma_products(spec.dtype_q,
                                 {{"wgmma_ds_keys", WgmmaA::kSharedRows, qk, kWarpgroupRows},
                                  {"wgmma_k_q", WgmmaA::kShared, kBandTile, qk},
                                  {"wgmma_v_dout", WgmmaA::kShared, kBandTile, v},
                                  {"wgmma_ds_q", WgmmaA::kRegisters, qk, kBandTile},
                                  {"wgmma_p_dout", WgmmaA::kRegisters, v, kBandTile}})}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    LaunchStructure all{.steps = {gradient_step(kernels(spec, config).front(), spec)}};
    all.steps.front().parts.push_back(ArgumentPart::kGradients);
    return all;
  }

  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    if (const auto reason = unfit(spec, config, shape))  // explicitly requested
      throw Error(ErrorCode::kUnsupported, *reason);
    const int places = tile_count(places_of(spec, shape));
    return {.steps = {{.grid_x = grid_extent(backward_band_blocks(places, device.sm_count)),
                       .num_tiles = places}}};
  }

 private:
  Broken family_refusal(const KernelSpec& spec, const Arch&) const override {
    if (!is_narrow_band(spec))
      return fmt::format("window is {}:{}; this template serves windows of at most {} keys",
                         window_side_text(spec.window_left), window_side_text(spec.window_right),
                         kBandWidest);
    if (spec.gqa_ratio != 1)
      return fmt::format("{} heads of q share one of k; this template serves 1", spec.gqa_ratio);
    const int widest = std::max(spec.head_dim_qk, spec.head_dim_v);
    if (widest > kBandHeadDim)
      return fmt::format("head dims are up to {}; must be at most {}", widest, kBandHeadDim);
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& backward_sm90_band() {
  static const Band instance;
  return instance;
}

}  // namespace attune
