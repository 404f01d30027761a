// SPDX-License-Identifier: Apache-2.0
// Makes a template's image key exactly as the engine and the fake compiler do.
#pragma once

#include <string>

#include "cache/records.hpp"
#include "generator/render/renderer.hpp"

namespace attune::testing {

inline ImageKey image_key_of(const KernelTemplate& kernel_template, const KernelSpec& spec,
                             const Arch& arch, const Config& config) {
  return {
      spec,
      arch.name(),
      {std::string(kernel_template.name()), template_digest(kernel_template), "fake 1.0", "-fake"},
      config,
      source_digest(render(kernel_template, spec, arch, config))};
}

}  // namespace attune::testing
