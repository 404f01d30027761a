// SPDX-License-Identifier: Apache-2.0
// All templates of the library, best first. A new template needs files under templates/, a family
// file, and one line in the .cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

const std::vector<const KernelTemplate*>& all_templates();
// Adds a template from outside families/, such as a test's, which must stay alive. Must be called
// before any other function of the library.
void add_template(const KernelTemplate& kernel_template);
// Throws kInvalidArgument, with the known templates, for an unknown name.
const KernelTemplate& template_by_name(std::string_view name);

// The state of the template from which a stored record was made, as this version has it.
enum class TemplateState {
  kSame,      // the same text
  kReworded,  // another text of the same revision: the record is valid, its timings are old
  kChanged,   // another revision: the record is stale
  kGone,      // there is no such template
};
// `digest`: the template digest in the record.
TemplateState template_state(std::string_view name, std::string_view digest);
inline bool is_current(TemplateState state) { return state <= TemplateState::kReworded; }

// A template, and the arch that its code is compiled for.
struct Family {
  const KernelTemplate* kernel_template = nullptr;
  Arch arch;
};

struct Refusal {
  const KernelTemplate* kernel_template;
  std::string reason;
};

// The templates that serve a spec on a device, and the reasons why the others do not.
struct Serving {
  std::vector<Family> families;     // best first, each with the best arch that it serves
  std::optional<Family> reference;  // the last choice
  std::vector<Refusal> refusals;    // about the best arch, in the order of all_templates()

  // Returns the first family, else the reference; null if no template serves the spec.
  const Family* best() const;
  // Searches the families and the reference; null if not found.
  const Family* find(std::string_view template_name) const;
  // Returns nullopt if the template serves the spec.
  std::optional<std::string> refusal_of(const KernelTemplate& kernel_template) const;
};

// Returns the families, with those that handle the shape well first. Of one group, the family with
// the cheapest default comes first. Otherwise keeps the given order.
std::vector<Family> by_fit(const std::vector<Family>& families, const KernelSpec& spec,
                           const Shape& shape, const DeviceFacts& device);
// Does the same without families of Fit::kNever, unless all are.
std::vector<Family> worth_trying(const std::vector<Family>& families, const KernelSpec& spec,
                                 const Shape& shape, const DeviceFacts& device);

// `archs` are the archs of images that run on the device, best first (Device::archs).
Serving serving(const KernelSpec& spec, const std::vector<Arch>& archs);

}  // namespace attune
