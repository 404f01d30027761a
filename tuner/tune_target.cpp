// SPDX-License-Identifier: Apache-2.0
// The tuner's view of a Device; see tune_target.hpp.
#include "tuner/tune_target.hpp"

#include <string>

#include "generator/renderer.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

// Every template that serves the spec, for the best arch it serves: the order of the runtime's
// ladder.
std::vector<Family> serving(const Device& device, const KernelSpec& spec) {
  std::vector<Family> families;
  const std::vector<Arch> archs = device.archs();
  for (const KernelTemplate* kernel_template : all_templates()) {
    for (const Arch& arch : archs) {
      if (kernel_template->refuses(spec, arch)) continue;
      families.push_back({kernel_template, arch});
      break;
    }
  }
  return families;
}

Source source_of(const KernelSpec& spec, const TuneCandidate& candidate) {
  return render(*candidate.family.kernel_template, spec, candidate.family.arch, candidate.config);
}

}  // namespace

std::vector<Family> DeviceTarget::families(const KernelSpec& spec) const {
  std::vector<Family> families = serving(*device_, spec);
  std::erase_if(families, [&](const Family& family) {
    return family.kernel_template->is_reference() ||
           (only_ != nullptr && family.kernel_template != only_);
  });
  return families;
}

ToolchainIdentity DeviceTarget::toolchain(const Family& family) const {
  const Compiler& compiler = device_->compiler();
  return {std::string(family.kernel_template->name()), template_digest(*family.kernel_template),
          compiler.version(), compiler.options(family.arch)};
}

std::string DeviceTarget::source_digest(const KernelSpec& spec,
                                        const TuneCandidate& candidate) const {
  return attune::source_digest(source_of(spec, candidate));
}

KernelImage DeviceTarget::make(const KernelSpec& spec, const TuneCandidate& candidate) const {
  return device_->compiler().compile(source_of(spec, candidate), candidate.family.arch);
}

std::optional<TuneCandidate> DeviceTarget::reference(const KernelSpec& spec) const {
  for (const Family& family : serving(*device_, spec)) {
    if (!family.kernel_template->is_reference()) continue;
    return TuneCandidate{
        family, family.kernel_template->default_config(spec, family.arch, Shape{}, facts()), false};
  }
  return std::nullopt;
}

}  // namespace attune
