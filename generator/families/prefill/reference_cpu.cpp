// SPDX-License-Identifier: Apache-2.0
// The oracle on CPUs: templates/cpu/small/reference_cpu.cpp, simple and slow, without knobs.
#include "generator/families/families.hpp"

#include "generator/core/problem/visibility.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/prefill/prefill_parts.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class ReferenceCpu final : public FixedTemplate {
 public:
  ReferenceCpu()
      : FixedTemplate("reference_cpu", "cpu/small/reference_cpu.cpp", "cpu/small/small_knobs.hpp",
                      1) {}

  bool is_reference() const override { return true; }

  const Served& serves() const override { return serves_everything(); }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    return constants_without_8_bits(spec);
  }

  LaunchStructure structure(const KernelSpec& spec, const Config&) const override {
    LaunchStructure all{.workspace = {{.name = "scores"}}};
    add_max_logits(spec, &all);
    return all;
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config&, const Shape& shape,
                    const DeviceFacts& device) const override {
    LaunchSizes all{.workspace = {{.columns = shape.seqlen_kv, .rows = device.sm_count}}};
    add_max_logits(spec, &all);
    return all;
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts&) const override {
    return 20.0 * visible_flops(problem_of(spec, shape));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return cpu_refusal(spec, arch);
  }
};

}  // namespace

const KernelTemplate& reference_cpu() {
  static const ReferenceCpu instance;
  return instance;
}

}  // namespace attune
