// SPDX-License-Identifier: Apache-2.0
// Adds gradients' problems to a workload; see workload.hpp.
#include "tuner/models/workload.hpp"

#include <set>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

// The effect of the options: true if any problem has gradients, and if any problem took the
// dropout.
struct Taken {
  bool training = false, dropout = false;
};

Taken add_to(const Training& training, std::vector<Problem>* problems) {
  std::vector<Problem> all;
  std::set<std::string> seen;
  Taken taken;
  const auto add = [&](const Problem& problem) {
    validate(problem);
    if (seen.insert(to_text(problem)).second) all.push_back(problem);
  };
  for (Problem forward : *problems) {
    const bool trains = !gradient_problems(forward).empty();
    if (trains && !is_8_bit(forward) && forward.dropout == 0) {
      forward.dropout = training.dropout;
      taken.dropout = true;
    }
    add(forward);
    for (Problem problem : gradient_problems(forward)) {
      problem.backward.deterministic = training.deterministic;
      add(problem);
    }
    taken.training |= trains;
  }
  *problems = std::move(all);
  return taken;
}

}  // namespace

void add_training(const Training& training, Workload* workload) {
  const Taken taken = add_to(training, &workload->problems);
  if (!taken.training)
    throw Error(ErrorCode::kInvalidArgument,
                "--training is given, but no problem has op prefill; must be given with models, or "
                "with problems of op prefill");
  if (training.dropout != 0 && !taken.dropout)
    throw Error(ErrorCode::kInvalidArgument,
                "--dropout is given, but no problem takes it: 8-bit problems have no dropout, and "
                "problems with a dropout keep theirs; must be given with problems of 16 or 32 bits "
                "without a dropout");
  for (LayerKind& kind : workload->layer_kinds) add_to(training, &kind.problems);
}

}  // namespace attune
