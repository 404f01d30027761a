// SPDX-License-Identifier: Apache-2.0
// Score feature chunk: divides positions into chunks of equal length, and hides keys outside the
// row's chunk.
#include "generator/score/features/features.hpp"

#include <fmt/format.h>

#include <array>

#include "generator/core/system/error.hpp"
#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.chunk > 0; }

void check(const Problem& problem) {
  if (problem.scores.chunk < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("chunk is {}; must be a number of keys above 0, or 0 for none",
                            problem.scores.chunk));
}

score::Program program(const SpecFields& spec) {
  return score::parse(
      fmt::format("return floordiv(q_idx + {1}, {0}) == floordiv(kv_idx, {0});", spec.scores.chunk,
                  spec.mask == Mask::kCausalTopLeft ? "0" : "seqlen_kv - seqlen_q"),
      score::Kind::kMask, {{}, {}}, "chunk");
}

}  // namespace

const ScoreFeature& chunk_feature() {
  static const ScoreFeature feature{.field = "chunk",
                                    .step = ScoreStep::kMask,
                                    .is_on = is_on,
                                    .validate = check,
                                    .program = program,
                                    .draw = [](std::mt19937_64& random, Problem* p) {
                                      p->scores.chunk = std::array{1, 16, 64, 100}[random() % 4];
                                    }};
  return feature;
}

}  // namespace attune
