// SPDX-License-Identifier: Apache-2.0
// A template with parts replaced by a test. Stands for the same family in another version of this
// program.
#pragma once

#include <functional>
#include <utility>

#include "generator/kernel_template.hpp"

namespace attune::testing {

class AlteredTemplate : public KernelTemplate {
 public:
  explicit AlteredTemplate(const KernelTemplate& original) : original_(original) {}

  std::function<void(const KernelSpec&, Constant*)> alter_constant = [](const KernelSpec&,
                                                                        Constant*) {};
  std::function<std::string(const KernelSpec&, std::string)> alter_part =
      [](const KernelSpec&, std::string text) { return text; };
  std::function<Config(Config)> alter_default = [](Config config) { return config; };

  std::string_view name() const override { return original_.name(); }
  std::string_view source_path() const override { return original_.source_path(); }
  std::string_view knobs_path() const override { return original_.knobs_path(); }
  int revision() const override { return original_.revision(); }
  const Served& serves() const override { return original_.serves(); }
  SearchSpace space(const KernelSpec& spec, const Arch& arch) const override {
    return original_.space(spec, arch);
  }
  Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                        const DeviceFacts& device) const override {
    return alter_default(original_.default_config(spec, arch, shape, device));
  }
  Resources resources(const KernelSpec& spec, const Arch& arch,
                      const Config& config) const override {
    return original_.resources(spec, arch, config);
  }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override {
    std::vector<Constant> constants = original_.extra_constants(spec, arch, config);
    for (Constant& constant : constants) alter_constant(spec, &constant);
    return constants;
  }
  std::vector<GeneratedPart> generated_parts(const KernelSpec& spec, const Arch& arch,
                                             const Config& config) const override {
    std::vector<GeneratedPart> parts = original_.generated_parts(spec, arch, config);
    for (GeneratedPart& part : parts) part.text = alter_part(spec, std::move(part.text));
    return parts;
  }
  LaunchStructure structure(const KernelSpec& spec, const Config& config) const override {
    return original_.structure(spec, config);
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const override {
    return original_.sizes(spec, config, shape, device);
  }
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    return original_.predicted_cost(spec, arch, config, shape, device);
  }

 protected:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const override {
    return original_.refuses(spec, arch);
  }

 private:
  const KernelTemplate& original_;
};

}  // namespace attune::testing
