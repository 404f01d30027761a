// SPDX-License-Identifier: Apache-2.0
// The reference kernels that oracles compare with. Each is compiled once. Used by tune and check.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>

#include "generator/core/system/error.hpp"
#include "tuner/measure/backend.hpp"
#include "tuner/oracles/oracle.hpp"
#include "tuner/search/tune_target.hpp"

namespace attune {

class ReferenceKernels {
 public:
  explicit ReferenceKernels(const TuneTarget& target) : target_(target) {}

  // Returns the kernel for MeasureTask::reference; nullopt if the problem's oracle computes on the
  // host. Throws kUnsupported if no reference kernel serves the problem: then results cannot be
  // checked.
  std::optional<KernelRequest> of(const Problem& problem) {
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

 private:
  const TuneTarget& target_;
  std::map<std::string, KernelRequest> made_;  // by the text of the spec
};

}  // namespace attune
