// SPDX-License-Identifier: Apache-2.0
// Refusals common to all templates: ops and features that a template does not name. See
// kernel_template.hpp.
#include "generator/kernel_template.hpp"

#include <fmt/format.h>

#include "generator/score/features/score_feature.hpp"

namespace attune {

std::optional<std::string> KernelTemplate::refuses(const KernelSpec& spec, const Arch& arch) const {
  return refuses(spec, features_of(spec), arch);
}

std::optional<std::string> KernelTemplate::refuses(const KernelSpec& spec, const Features& features,
                                                   const Arch& arch) const {
  const Served& served = serves();
  if (spec.op != served.op)
    return fmt::format("op is {}; this template serves {}", op_name(spec.op), op_name(served.op));
  const auto is_served = [&](const std::string& field) {
    return served.features.count(field) != 0 || (served.scores && is_score_field(field));
  };
  for (const ProblemField* field : features)
    if (!is_served(field->name))
      return fmt::format(
          "{} is {}; this template serves {}", field->name, field->print(problem_of(spec)),
          field->without.empty() ? field->print(Problem{}) + " only" : field->without);
  return refusal(spec, arch);
}

}  // namespace attune
