// SPDX-License-Identifier: Apache-2.0
// See cpu_arguments.hpp.
#include "generator/families/cpu_arguments.hpp"

#include "generator/core/problem/op.hpp"
#include "generator/families/any_dtype.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {

std::vector<Constant> constants_of_earlier_arguments(const KernelSpec& spec) {
  const bool gradients = describe(spec.op).has_gradients, cache = describe(spec.op).has_cache;
  const bool dropout = spec.dropout > 0;
  std::vector<Constant> constants;
  if ((gradients || dropout || cache) && !has_score_args(spec))
    constants.push_back({"bool", "kScoreArgs", "true"});
  if ((dropout || cache) && !gradients) constants.push_back({"bool", "kGradientArgs", "true"});
  if (cache && !dropout) constants.push_back({"bool", "kDropout", "true"});
  return constants;
}

std::vector<Constant> vector_constants(const KernelSpec& spec, const Arch& arch,
                                       int64_t scratch_bytes) {
  std::vector<Constant> constants = constants_without_8_bits(spec);
  constants.push_back({"int", "kVectorBytes", std::to_string(arch.vector_bytes)});
  constants.push_back({"long long", "kScratchBytes", std::to_string(scratch_bytes)});
  for (Constant& constant : constants_of_earlier_arguments(spec))
    constants.push_back(std::move(constant));
  return constants;
}

}  // namespace attune
