// SPDX-License-Identifier: Apache-2.0
// index_scores_cpu: op index_scores on CPUs. Kernel: templates/cpu/small/index_scores.cpp.
#include "generator/families/families.hpp"

#include "generator/core/ops/ops.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class IndexScoresCpu final : public FixedTemplate {
 public:
  IndexScoresCpu()
      : FixedTemplate("index_scores_cpu", "cpu/small/index_scores.cpp", "cpu/small/small_knobs.hpp",
                      1) {}

  const Served& serves() const override { return serves_indexing(); }
  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales}}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts& device) const override {
    return useful_flops(problem_of(spec, shape)) / device.sm_count;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& index_scores_cpu() {
  static const IndexScoresCpu instance;
  return instance;
}

}  // namespace attune
