// SPDX-License-Identifier: Apache-2.0
// See training.hpp.
#include "tuner/training.hpp"

#include <set>

#include "generator/core/error.hpp"

namespace attune {
namespace {

// Those of one forward, itself first.
std::vector<Problem> trained(Problem forward, float dropout) {
  if (forward.op != Op::kPrefill) return {forward};
  if (!is_fp8(forward) && forward.dropout == 0) forward.dropout = dropout;
  Problem backward = forward;
  backward.op = Op::kAttentionBackward;
  if (is_fp8(forward)) {
    backward.dtype_q = backward.dtype_kv = backward.dtype_o;
    backward.fp8 = {};
  }
  std::vector<Problem> all{forward, backward};
  const auto add = [&](bool there, ScoreGradient of, Repeats repeats) {
    if (!there) return;
    Problem problem = backward;
    problem.score_gradient = of;
    problem.repeats = repeats;
    all.push_back(problem);
  };
  // A bias that is learnt is one of positions: batch entries share it.
  add(forward.bias != ScoreTensor::kNone, ScoreGradient::kBias,
      forward.batch > 1 ? Repeats::kBatch : Repeats::kNone);
  add(forward.relative_bias != ScoreTensor::kNone, ScoreGradient::kRelativeBias, Repeats::kNone);
  add(forward.sinks != ScoreTensor::kNone, ScoreGradient::kSinks, Repeats::kNone);
  return all;
}

bool add_to(float dropout, std::vector<Problem>* problems) {
  std::vector<Problem> all;
  std::set<std::string> seen;
  bool found = false;
  for (const Problem& given : *problems) {
    found |= given.op == Op::kPrefill;
    for (const Problem& problem : trained(given, dropout)) {
      validate(problem);
      if (seen.insert(to_text(problem)).second) all.push_back(problem);
    }
  }
  *problems = std::move(all);
  return found;
}

}  // namespace

void add_training(float dropout, Workload* workload) {
  if (!add_to(dropout, &workload->problems))
    throw Error(
        ErrorCode::kInvalidArgument,
        "--training is given, and no problem is one of op prefill; accepted are models, and "
        "problems of op prefill");
  for (LayerKind& kind : workload->layer_kinds) add_to(dropout, &kind.problems);
}

}  // namespace attune
