// SPDX-License-Identifier: Apache-2.0
// append_kv_cpu: op append_kv on every CPU. Kernel: templates/cpu/append_kv.cpp.
#include "generator/families/families.hpp"

#include <fmt/format.h>

#include "generator/families/cpu_arguments.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class AppendKvCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "append_kv_cpu"; }
  std::string_view source_path() const override { return "cpu/append_kv.cpp"; }
  std::string_view knobs_path() const override { return "cpu/append_kv_knobs.hpp"; }
  const Served& serves() const override { return serves_appending(); }

  SearchSpace space(const KernelSpec&, const Arch&) const override { return SearchSpace({}, {}); }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return {};
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    return constants_of_earlier_arguments(spec);
  }
  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales, ArgumentPart::kCache,
                                 ArgumentPart::kAppend}}}};
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
    if (arch.target != Target::kCpu)
      return fmt::format("this template serves CPUs, not {}", arch.name());
    return std::nullopt;
  }
};

}  // namespace

const KernelTemplate& append_kv_cpu() {
  static const AppendKvCpu instance;
  return instance;
}

}  // namespace attune
