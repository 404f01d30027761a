// SPDX-License-Identifier: Apache-2.0
// backward_reference_cuda: gradients of attention from the definition, on every CUDA arch. The last
// resort of a call; tests compare other kernels with it.
#include "generator/families/families.hpp"

#include "generator/core/problem/op.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/served.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

constexpr int kWarps = 4;  // rows per block, one per warp
constexpr int64_t kBlocksPerSm = 16;

class BackwardReferenceCuda final : public FixedTemplate {
 public:
  BackwardReferenceCuda()
      : FixedTemplate("backward_reference_cuda", "cuda/small/backward_reference.cu",
                      "cuda/small/small_knobs.cuh", 32 * kWarps) {}

  bool is_reference() const override { return true; }
  const Served& serves() const override { return serves_every_gradient(); }
  std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                        const Config&) const override {
    return {{"int", "kWarps", std::to_string(kWarps)}};
  }

  LaunchStructure structure(const KernelSpec& spec, const Config&) const override {
    std::vector<ArgumentPart> parts{ArgumentPart::kBase, ArgumentPart::kGradients};
    if (spec.dropout > 0) parts.insert(parts.begin(), ArgumentPart::kDropout);
    if (has_score_args(spec)) parts.insert(parts.begin(), ArgumentPart::kScores);
    const StepStructure delta{.entry = "attune_delta",
                              .parts = {ArgumentPart::kBase, ArgumentPart::kGradients},
                              .threads = 32 * kWarps};
    if (spec.backward.score_gradient != ScoreGradient::kNone)
      return {.steps = {delta, {.entry = "attune_scores", .parts = parts, .threads = 32 * kWarps}},
              .main_step = 1,
              .workspace = {{.name = "delta"}}};
    return {.steps = {delta,
                      {.parts = parts, .threads = 32 * kWarps},
                      {.entry = "attune_keys", .parts = parts, .threads = 32 * kWarps}},
            .main_step = 1,
            .workspace = {{.name = "delta"}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config&, const Shape& shape,
                    const DeviceFacts& device) const override {
    const auto grid = [&](int64_t rows) {
      return StepSize{.grid_x = grid_extent((rows + kWarps - 1) / kWarps)};
    };
    const StepSize rows = grid(shape.batch * shape.num_heads_q * shape.seqlen_q);
    const std::vector<TensorExtents> delta{
        {.columns = shape.seqlen_q, .rows = shape.num_heads_q, .heads = 1, .batch = shape.batch}};
    if (spec.backward.score_gradient != ScoreGradient::kNone)  // warps take elements in turn
      return {.steps = {rows, {.grid_x = grid_extent(kBlocksPerSm * device.sm_count)}},
              .workspace = delta};
    return {.steps = {rows, rows, grid(shape.batch * shape.num_heads_kv * shape.seqlen_kv)},
            .workspace = delta};
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts&) const override {
    return useful_flops(problem_of(spec, shape));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCuda);
  }
};

}  // namespace

const KernelTemplate& backward_reference_cuda() {
  static const BackwardReferenceCuda instance;
  return instance;
}

}  // namespace attune
