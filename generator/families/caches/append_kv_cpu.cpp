// SPDX-License-Identifier: Apache-2.0
// append_kv_cpu: op append_kv on every CPU. Kernel: templates/cpu/small/append_kv.cpp.
#include "generator/families/families.hpp"

#include "generator/families/fixed_template.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class AppendKvCpu final : public FixedTemplate {
 public:
  AppendKvCpu()
      : FixedTemplate("append_kv_cpu", "cpu/small/append_kv.cpp", "cpu/small/small_knobs.hpp", 1) {}

  const Served& serves() const override { return serves_appending(); }
  LaunchStructure structure(const KernelSpec& spec, const Config&) const override {
    return {.steps = {{.parts = append_parts(spec)}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts& device) const override {
    return static_cast<double>(shape.batch * shape.num_heads_kv) *
           static_cast<double>(shape.seqlen_q) * (spec.head_dim_qk + spec.head_dim_v) /
           device.sm_count;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& append_kv_cpu() {
  static const AppendKvCpu instance;
  return instance;
}

}  // namespace attune
