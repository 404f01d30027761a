// SPDX-License-Identifier: Apache-2.0
// What every template refuses: ops and features that it does not name. See kernel_template.hpp.
#include "generator/kernel_template.hpp"

#include <fmt/format.h>

#include "generator/core/problem_fields.hpp"

namespace attune {

std::optional<std::string> KernelTemplate::refuses(const KernelSpec& spec, const Arch& arch) const {
  const Served& served = serves();
  if (spec.op != served.op)
    return fmt::format("op is {}; it serves {}", op_name(spec.op), op_name(served.op));
  for (const ProblemField* field : features_of(spec))
    if (served.features.count(field->name) == 0)
      return fmt::format("{} is {}; it serves {} alone", field->name,
                         field->print(problem_of(spec)), field->print(Problem{}));
  return refusal(spec, arch);
}

}  // namespace attune
