// SPDX-License-Identifier: Apache-2.0
// TuneCandidate: one way to make a kernel for a KernelSpec. The search proposes candidates, the
// compile pool compiles them, the backend measures them. The result is a TrialRecord
// (cache/records.hpp).
#pragma once

#include <string>

#include "cache/records.hpp"
#include "generator/template_registry.hpp"

namespace attune {

struct TuneCandidate {
  Family family;
  Config config;
  bool is_default = false;  // a runtime launches this one if nothing was tuned

  // Returns a text that tells candidates of one spec apart: "prefill_sm80@sm_90
  // block_m=128,block_n=64".
  std::string text() const {
    return std::string(family.kernel_template->name()) + "@" + family.arch.name() + " " +
           config.to_text();
  }
};

// The reason why a candidate cannot win. Never kOk.
struct Fault {
  TrialStatus status = TrialStatus::kLaunchFailed;
  std::string reason;
  bool fatal = false;  // the process that it happened in must not launch again
};

}  // namespace attune
