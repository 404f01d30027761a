// SPDX-License-Identifier: Apache-2.0
// See training.hpp.
#include "tuner/training.hpp"

#include <set>

#include "generator/core/error.hpp"
#include "generator/core/ops/attention_backward.hpp"

namespace attune {
namespace {

// Returns whether any has gradients.
bool add_to(const Training& training, std::vector<Problem>* problems) {
  std::vector<Problem> all;
  std::set<std::string> seen;
  bool found = false;
  const auto add = [&](const Problem& problem) {
    validate(problem);
    if (seen.insert(to_text(problem)).second) all.push_back(problem);
  };
  for (Problem forward : *problems) {
    const bool trains = !gradient_problems(forward).empty();
    if (trains && !is_8_bit(forward) && forward.dropout == 0) forward.dropout = training.dropout;
    add(forward);
    for (Problem problem : gradient_problems(forward)) {
      problem.deterministic = training.deterministic;
      add(problem);
    }
    found |= trains;
  }
  *problems = std::move(all);
  return found;
}

}  // namespace

void add_training(const Training& training, Workload* workload) {
  if (!add_to(training, &workload->problems))
    throw Error(
        ErrorCode::kInvalidArgument,
        "--training is given, and no problem is one of op prefill; accepted are models, and "
        "problems of op prefill");
  for (LayerKind& kind : workload->layer_kinds) add_to(training, &kind.problems);
}

}  // namespace attune
