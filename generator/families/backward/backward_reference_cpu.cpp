// SPDX-License-Identifier: Apache-2.0
// backward_reference_cpu: gradients of attention from the definition, on a CPU. The last resort of
// a call; tests compare other kernels with it.
#include "generator/families/families.hpp"

#include "generator/core/problem/op.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class BackwardReferenceCpu final : public FixedTemplate {
 public:
  BackwardReferenceCpu()
      : FixedTemplate("backward_reference_cpu", "cpu/small/backward_reference.cpp",
                      "cpu/small/small_knobs.hpp", 1) {}

  bool is_reference() const override { return true; }

  const Served& serves() const override { return serves_every_gradient(); }

  LaunchStructure structure(const KernelSpec& spec, const Config&) const override {
    if (spec.backward.score_gradient != ScoreGradient::kNone)
      return {.steps = {{.entry = "attune_delta"}, {.entry = "attune_scores"}},
              .main_step = 1,
              .workspace = {{.name = "delta"}}};
    return {.steps = {{.entry = "attune_delta"}, {}, {.entry = "attune_keys"}},
            .main_step = 1,
            .workspace = {{.name = "delta"}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config&, const Shape& shape,
                    const DeviceFacts&) const override {
    return {.steps =
                std::vector<StepSize>(spec.backward.score_gradient != ScoreGradient::kNone ? 2 : 3),
            .workspace = {{.columns = shape.seqlen_q,
                           .rows = shape.num_heads_q,
                           .heads = 1,
                           .batch = shape.batch}}};
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts&) const override {
    return 20.0 * useful_flops(problem_of(spec, shape));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return cpu_refusal(spec, arch);
  }
};

}  // namespace

const KernelTemplate& backward_reference_cpu() {
  static const BackwardReferenceCpu instance;
  return instance;
}

}  // namespace attune
