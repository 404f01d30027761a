// SPDX-License-Identifier: Apache-2.0
// All templates the library knows, best first. Adding one: its files under templates/, its family file, one line in the .cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

const std::vector<const KernelTemplate*>& all_templates();
// Adds a template from elsewhere (of a test), which must stay alive. To be called before anything
// else.
void add_template(const KernelTemplate& kernel_template);
// Throws kInvalidArgument, naming the known templates.
const KernelTemplate& template_by_name(std::string_view name);

// A template and the arch its code is made for.
struct Family {
  const KernelTemplate* kernel_template = nullptr;
  Arch arch;
};

struct Refusal {
  const KernelTemplate* kernel_template;
  std::string reason;
};

// Which templates serve a spec on a device, and why the others do not.
struct Serving {
  std::vector<Family> families;     // best first, each for the best arch that it serves
  std::optional<Family> reference;  // below all families
  std::vector<Refusal> refusals;    // about the best arch, in the order of all_templates()

  // The first family, else the reference; null where nothing serves.
  const Family* best() const;
  // Among the families and the reference; null when it is none of them.
  const Family* find(std::string_view template_name) const;
  // nullopt when it serves.
  std::optional<std::string> refusal_of(const KernelTemplate& kernel_template) const;
};

// Those that do well with a shape first, their order kept.
std::vector<Family> by_fit(std::vector<Family> families, const KernelSpec& spec,
                           const Shape& shape);
// The same without those that never do, where others are.
std::vector<Family> worth_trying(const std::vector<Family>& families, const KernelSpec& spec,
                                 const Shape& shape);

// `archs`: those that images may be made for there, best first (Device::archs).
Serving serving(const KernelSpec& spec, const std::vector<Arch>& archs);

}  // namespace attune
