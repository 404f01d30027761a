// SPDX-License-Identifier: Apache-2.0
// reference_cuda: the tuner's oracle on a GPU, for every CUDA arch, in fp32, bf16, fp16 and 8 bits.
// Kernel: templates/cuda/small/reference.cu.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/visibility.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

constexpr int kWarps = 4;  // query rows per block, one per warp

class ReferenceCuda final : public FixedTemplate {
 public:
  ReferenceCuda()
      : FixedTemplate("reference_cuda", "cuda/small/reference.cu", "cuda/small/small_knobs.cuh",
                      32 * kWarps) {}

  bool is_reference() const override { return true; }

  const Served& serves() const override { return serves_everything(); }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    std::vector<Constant> constants = constants_without_8_bits(spec);
    constants.push_back({"int", "kWarps", std::to_string(kWarps)});
    return constants;
  }

  LaunchStructure structure(const KernelSpec& spec, const Config&) const override {
    std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kScales};
    if (spec.dropout > 0) parts.insert(parts.begin(), ArgumentPart::kDropout);
    if (has_score_args(spec)) parts.insert(parts.begin(), ArgumentPart::kScores);
    LaunchStructure all{.steps = {{.parts = parts, .threads = 32 * kWarps}}};
    add_max_logits(spec, &all);
    return all;
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config&, const Shape& shape,
                    const DeviceFacts&) const override {
    const int64_t rows = shape.batch * shape.num_heads_q * shape.seqlen_q;
    LaunchSizes all{.steps = {{.grid_x = grid_extent((rows + kWarps - 1) / kWarps)}}};
    add_max_logits(spec, &all);
    return all;
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts&) const override {
    return visible_flops(problem_of(spec, shape));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (auto reason = other_target(arch, Target::kCuda)) return reason;
    if (auto reason = any_dtype_refusal(spec)) return reason;
    for (const auto& [name, value, most] :
         {std::tuple{"head_dim_qk", spec.head_dim_qk, kMaxHeadDimQk},
          std::tuple{"head_dim_v", spec.head_dim_v, kMaxHeadDimV}})
      if (value < 1 || value > most)
        return fmt::format("{} is {}; this template serves 1 to {}", name, value, most);
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& reference_cuda() {
  static const ReferenceCuda instance;
  return instance;
}

}  // namespace attune
