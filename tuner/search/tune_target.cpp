// SPDX-License-Identifier: Apache-2.0
// The tuner's view of a Device; see tune_target.hpp.
#include "tuner/search/tune_target.hpp"

#include <string>

#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

Source source_of(const KernelSpec& spec, const TuneCandidate& candidate) {
  return render(*candidate.family.kernel_template, spec, candidate.family.arch, candidate.config);
}

}  // namespace

std::vector<Family> DeviceTarget::families(const KernelSpec& spec) const {
  std::vector<Family> families = serving(spec, device_->archs()).families;
  if (only_ != nullptr)
    std::erase_if(families, [&](const Family& family) { return family.kernel_template != only_; });
  return families;
}

ToolchainIdentity DeviceTarget::toolchain(const Family& family) const {
  const std::lock_guard lock(mutex_);
  ToolchainIdentity& known = toolchains_[{family.kernel_template, family.arch.name()}];
  if (known.template_name.empty()) {
    const Compiler& compiler = device_->compiler();
    known = {std::string(family.kernel_template->name()), template_digest(*family.kernel_template),
             compiler.version(), compiler.options(family.arch)};
  }
  return known;
}

std::string DeviceTarget::source_digest(const KernelSpec& spec,
                                        const TuneCandidate& candidate) const {
  return attune::source_digest(source_of(spec, candidate));
}

KernelImage DeviceTarget::make(const KernelSpec& spec, const TuneCandidate& candidate) const {
  return device_->compiler().compile(source_of(spec, candidate), candidate.family.arch);
}

std::optional<TuneCandidate> DeviceTarget::reference(const KernelSpec& spec) const {
  const std::optional<Family> found = serving(spec, device_->archs()).reference;
  if (!found) return std::nullopt;
  return TuneCandidate{
      *found, found->kernel_template->default_config(spec, found->arch, Shape{}, facts()), false};
}

}  // namespace attune
