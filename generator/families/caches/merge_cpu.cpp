// SPDX-License-Identifier: Apache-2.0
// merge_cpu: op merge on CPUs. Kernel: templates/cpu/small/merge.cpp.
#include "generator/families/families.hpp"

#include "generator/families/fixed_template.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class MergeCpu final : public FixedTemplate {
 public:
  MergeCpu() : FixedTemplate("merge_cpu", "cpu/small/merge.cpp", "cpu/small/small_knobs.hpp", 1) {}

  const Served& serves() const override { return serves_merging(); }
  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales}}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts& device) const override {
    return static_cast<double>(shape.batch * shape.num_heads_q) *
           static_cast<double>(shape.seqlen_q) * spec.head_dim_qk / device.sm_count;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& merge_cpu() {
  static const MergeCpu instance;
  return instance;
}

}  // namespace attune
