// SPDX-License-Identifier: Apache-2.0
// top_k_cpu: op top_k on CPUs. Kernel: templates/cpu/small/top_k.cpp.
#include "generator/families/families.hpp"

#include "generator/core/ops/ops.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/limits.hpp"
#include "generator/families/served.hpp"

namespace attune {
namespace {

class TopKCpu final : public FixedTemplate {
 public:
  TopKCpu() : FixedTemplate("top_k_cpu", "cpu/small/top_k.cpp", "cpu/small/small_knobs.hpp", 1) {}

  const Served& serves() const override { return serves_choosing(); }
  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales}}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape& shape,
                    const DeviceFacts&) const override {
    return {.steps = {{.num_tiles = tile_count(keys_of_list(shape))}}};
  }
  double predicted_cost(const KernelSpec&, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts& device) const override {
    return static_cast<double>(shape.batch * shape.num_heads_q) *
           static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv) /
           device.sm_count;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& top_k_cpu() {
  static const TopKCpu instance;
  return instance;
}

}  // namespace attune
