// SPDX-License-Identifier: Apache-2.0
// backward_lists_cpu: gradients of attention over lists of keys, on a CPU
// (templates/cpu/small/backward_lists.cpp). The sums of dK and dV are in the workspace.
#include "generator/families/families.hpp"

#include "generator/core/problem/op.hpp"
#include "generator/families/fixed_template.hpp"
#include "generator/families/served.hpp"
#include "templates/shared/layouts/backward_lists_layout.h"

namespace attune {
namespace {

class BackwardListsCpu final : public FixedTemplate {
 public:
  BackwardListsCpu()
      : FixedTemplate("backward_lists_cpu", "cpu/small/backward_lists.cpp",
                      "cpu/small/small_knobs.hpp", 1) {}

  const Served& serves() const override { return serves_gradients_over_lists(); }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config&) const override {
    return {bool_constant("kValuesInKeys", spec.cache.v_in_k)};
  }
  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    const auto step = [](const char* entry) {
      return StepStructure{.entry = entry, .parts = {ArgumentPart::kBase, ArgumentPart::kLists}};
    };
    return {.steps = {step("attune_delta"), step(kEntryName), step("attune_keys")},
            .main_step = 1,
            .workspace = {{.name = "sums"}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config&, const Shape& shape,
                    const DeviceFacts&) const override {
    const int64_t rows = shape.batch * shape.num_heads_q * shape.seqlen_q;
    const int columns =
        backward_lists_columns(spec.head_dim_qk, spec.head_dim_v, spec.cache.v_in_k);
    return {
        .steps = std::vector<StepSize>(3),
        .workspace = {{.columns = backward_lists_aligned(rows) +
                                  shape.batch * shape.seqlen_kv * shape.num_heads_kv * columns}}};
  }

  double predicted_cost(const KernelSpec& spec, const Arch&, const Config&, const Shape& shape,
                        const DeviceFacts&) const override {
    return useful_flops(problem_of(spec, shape));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    if (spec.cache.key_indices == KeyIndices::kNone)
      return "key_indices is none; this template serves lists of keys";
    return cpu_refusal(spec, arch);
  }
};

}  // namespace

const KernelTemplate& backward_lists_cpu() {
  static const BackwardListsCpu instance;
  return instance;
}

}  // namespace attune
