// SPDX-License-Identifier: Apache-2.0
// The ATTUNE_* variables that are set, what each resolves to, and what is wrong with it. Used by
// `attune doctor`.
#pragma once

#include <string>
#include <vector>

namespace attune::cli {

enum class VariableState {
  kInForce,
  kPassedOver,  // without effect: replaced by something else, or unknown to attune
  kRefused,     // no program opens a context until it is corrected
};

struct VariableReport {
  std::string name, value;
  VariableState state = VariableState::kInForce;
  std::string detail;  // what it resolves to, or what is wrong
};

const char* state_name(VariableState state);  // "in force", "passed over", "refused"

// Reports the variables that are set, in the order of kEnvironmentVariables, then unknown ones.
std::vector<VariableReport> report_variables();

}  // namespace attune::cli
