// SPDX-License-Identifier: Apache-2.0
// See cpu_arguments.hpp.
#include "generator/families/cpu_arguments.hpp"

#include "generator/core/op.hpp"
#include "generator/core/score_feature.hpp"

namespace attune {

std::vector<Constant> constants_of_earlier_arguments(const KernelSpec& spec) {
  const bool gradients = describe(spec.op).has_gradients;
  std::vector<Constant> constants;
  if ((gradients || spec.dropout > 0) && !has_score_args(spec))
    constants.push_back({"bool", "kScoreArgs", "true"});
  if (spec.dropout > 0 && !gradients) constants.push_back({"bool", "kGradientArgs", "true"});
  return constants;
}

}  // namespace attune
