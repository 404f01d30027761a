// SPDX-License-Identifier: Apache-2.0
// Chooses and compiles reference kernels; see reference_kernels.hpp.
#include "tuner/oracles/reference_kernels.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "tuner/oracles/oracle.hpp"

namespace attune {

std::optional<KernelRequest> ReferenceKernels::of(const Problem& problem) {
  const auto spec = oracle_of(problem).reference_spec(problem, target_.kind());
  if (!spec) return std::nullopt;
  const std::string text = to_text(*spec);
  if (const auto found = made_.find(text); found != made_.end()) return found->second;
  const std::optional<TuneCandidate> reference = target_.reference(*spec);
  if (!reference)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("no reference kernel serves {} on {}: results cannot be checked",
                            to_text(problem), target_.identity().arch));
  return made_[text] = {std::string(reference->family.kernel_template->name()), reference->config,
                        target_.make(*spec, *reference)};
}

}  // namespace attune
