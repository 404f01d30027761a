// SPDX-License-Identifier: Apache-2.0
// Returns the launch structure of a plan that a test assembled by hand.
#pragma once

#include "generator/launch_plan.hpp"

namespace attune::testing {

inline LaunchStructure structure_of(const LaunchPlan& plan) {
  LaunchStructure structure;
  structure.steps.assign(plan.steps.begin(), plan.steps.end());
  structure.main_step = plan.main_step;
  structure.workspace.assign(plan.workspace.begin(), plan.workspace.end());
  return structure;
}

}  // namespace attune::testing
