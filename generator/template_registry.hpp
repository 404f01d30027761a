// SPDX-License-Identifier: Apache-2.0
// All templates that the library knows, best first. A new one needs its files under templates/, its
// family file, and one line in the .cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

const std::vector<const KernelTemplate*>& all_templates();
// Adds a template from elsewhere (a test, say), which must stay alive. Call it before anything
// else.
void add_template(const KernelTemplate& kernel_template);
// Throws kInvalidArgument that lists the known templates.
const KernelTemplate& template_by_name(std::string_view name);

// A template, and the arch that its code is made for.
struct Family {
  const KernelTemplate* kernel_template = nullptr;
  Arch arch;
};

struct Refusal {
  const KernelTemplate* kernel_template;
  std::string reason;
};

// The templates that serve a spec on a device, and why the others do not.
struct Serving {
  std::vector<Family> families;     // best first, each for the best arch that it serves
  std::optional<Family> reference;  // below all families
  std::vector<Refusal> refusals;    // about the best arch, in the order of all_templates()

  // Returns the first family, else the reference; null if nothing serves.
  const Family* best() const;
  // Searches the families and the reference; null if not found.
  const Family* find(std::string_view template_name) const;
  // Returns nullopt if it serves.
  std::optional<std::string> refusal_of(const KernelTemplate& kernel_template) const;
};

// Returns the families, those that do well with a shape first; otherwise keeps their order.
std::vector<Family> by_fit(std::vector<Family> families, const KernelSpec& spec,
                           const Shape& shape);
// Does the same without families of Fit::kNever, unless there are no others.
std::vector<Family> worth_trying(const std::vector<Family>& families, const KernelSpec& spec,
                                 const Shape& shape);

// `archs`: the archs that images may be made for on the device, best first (Device::archs).
Serving serving(const KernelSpec& spec, const std::vector<Arch>& archs);

}  // namespace attune
