// SPDX-License-Identifier: Apache-2.0
// All templates the library knows, best first. Adding one: its files under templates/, its family file, one line in the .cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

const std::vector<const KernelTemplate*>& all_templates();
// Adds one that stands elsewhere, before anything else is called. It stays alive.
void add_template(const KernelTemplate& kernel_template);
// Throws kInvalidArgument naming the known ones.
const KernelTemplate& template_by_name(std::string_view name);

struct Refusal {
  const KernelTemplate* kernel_template;
  std::string reason;
};

// The templates that serve (spec, arch), best family first; the reference is always last. `refusals`, if given, gets the others.
std::vector<const KernelTemplate*> templates_for(const KernelSpec& spec, const Arch& arch,
                                                 std::vector<Refusal>* refusals = nullptr);

}  // namespace attune
