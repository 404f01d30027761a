// SPDX-License-Identifier: Apache-2.0
// merge_cpu: op merge on CPUs. Kernel: templates/cpu/merge.cpp.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include "generator/families/served.hpp"

namespace attune {
namespace {

class MergeCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "merge_cpu"; }
  std::string_view source_path() const override { return "cpu/merge.cpp"; }
  std::string_view knobs_path() const override { return "cpu/merge_knobs.hpp"; }
  const Served& serves() const override { return serves_merging(); }

  SearchSpace space(const KernelSpec&, const Arch&) const override { return SearchSpace({}, {}); }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return {};
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }
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
    if (arch.target != Target::kCpu)
      return fmt::format("this template serves CPUs, not {}", arch.name());
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& merge_cpu() {
  static const MergeCpu instance;
  return instance;
}

}  // namespace attune
