// SPDX-License-Identifier: Apache-2.0
// Score feature softcap: c * tanh(score / c).
#include "generator/score/features/features.hpp"

#include <fmt/format.h>

#include <array>

#include <cmath>

#include "generator/core/system/error.hpp"
#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.softcap != 0; }

void check(const Problem& problem) {
  if (!std::isfinite(problem.scores.softcap) || problem.scores.softcap < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("softcap is {}; must be a finite number above 0, or 0 for none",
                            problem.scores.softcap));
}

score::Program program(const SpecFields& spec) {
  return score::parse(fmt::format("return {0:#} * tanh(score / {0:#});", spec.scores.softcap),
                      score::Kind::kScore, {}, "softcap");
}

}  // namespace

const ScoreFeature& softcap_feature() {
  static const ScoreFeature feature{
      .field = "softcap",
      .step = ScoreStep::kSoftcap,
      .is_on = is_on,
      .validate = check,
      .program = program,
      .draw =
          [](std::mt19937_64& random, Problem* p) {
            p->scores.softcap = std::array{1.5F, 20.0F, 50.0F}[random() % 3];
          },
      .bends = true,
      .of_score_alone = true,
      .over_caches = true};
  return feature;
}

}  // namespace attune
