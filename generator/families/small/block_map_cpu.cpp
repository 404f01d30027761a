// SPDX-License-Identifier: Apache-2.0
// The family of op block_map on CPUs; see templates/cpu/small/block_map.cpp.
// The kernel, templates/cpu/small/block_map.cpp, explains the knob.
#include "generator/families/families.hpp"

#include "generator/families/served.hpp"

namespace attune {
namespace {

class BlockMapCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "block_map_cpu"; }
  std::string_view source_path() const override { return "cpu/small/block_map.cpp"; }
  std::string_view knobs_path() const override { return "cpu/small/small_knobs.hpp"; }

  const Served& serves() const override { return serves_mapping(); }

  SearchSpace space(const KernelSpec&, const Arch&) const override {
    return SearchSpace({{"rows", {8, 16, 4}, "rows whose parts of a program are kept together"}},
                       {});
  }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return Config({{"rows", 8}});
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }
  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {.steps = {{.parts = {ArgumentPart::kScores, ArgumentPart::kBase}}}};
  }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }

  // With fewer rows at a time, column parts are evaluated more often.
  double predicted_cost(const KernelSpec&, const Arch&, const Config& config, const Shape& shape,
                        const DeviceFacts&) const override {
    return static_cast<double>(shape.seqlen_q) * static_cast<double>(shape.seqlen_kv) *
           (1 + 1 / static_cast<double>(config.at("rows")));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& block_map_cpu() {
  static const BlockMapCpu instance;
  return instance;
}

}  // namespace attune
