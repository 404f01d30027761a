// SPDX-License-Identifier: Apache-2.0
// The reference kernels that oracles compare with. Each is compiled once. Used by tune and check.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tuner/measure/backend.hpp"
#include "tuner/search/tune_target.hpp"

namespace attune {

class ReferenceKernels {
 public:
  explicit ReferenceKernels(const TuneTarget& target) : target_(target) {}

  // Returns the kernel for MeasureTask::reference; nullopt if the problem's oracle computes on the
  // host. Throws kUnsupported if no reference kernel serves the problem: then results cannot be
  // checked.
  std::optional<KernelRequest> of(const Problem& problem);

 private:
  const TuneTarget& target_;
  std::map<std::string, KernelRequest> made_;  // by the text of the spec
};

}  // namespace attune
