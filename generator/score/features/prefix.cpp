// SPDX-License-Identifier: Apache-2.0
// Score feature prefix: a causal mask that also shows the first prefix[batch] keys. It includes the
// causal mask, so the problem's mask must be none.
#include "generator/score/features/features.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.prefix; }

void check(const Problem& problem) {
  if (problem.scores.prefix && problem.mask != Mask::kNone)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("prefix is given and mask is {}; mask must be none, since prefix is "
                            "causal itself and also shows keys that a causal mask hides",
                            mask_name(problem.mask)));
}

score::Program program(const SpecFields&) {
  return score::parse("return kv_idx <= q_idx + seqlen_kv - seqlen_q || kv_idx < prefix[batch];",
                      score::Kind::kMask, {{{"prefix", CaptureType::kInt32, 1}}, {}}, "prefix");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  return {{"prefix",
           CaptureType::kInt32,
           {p.batch},
           "[batch]",
           [](const std::vector<int64_t>& at, std::mt19937_64& random) {
             return static_cast<double>(random() % 200 + static_cast<uint64_t>(at[0]));
           }}};
}

}  // namespace

const ScoreFeature& prefix_feature() {
  static const ScoreFeature feature{.field = "prefix",
                                    .step = ScoreStep::kMask,
                                    .is_on = is_on,
                                    .validate = check,
                                    .program = program,
                                    .captures = captures,
                                    .draw = [](std::mt19937_64&, Problem* p) {
                                      p->scores.prefix = true;
                                      p->mask = Mask::kNone;
                                    }};
  return feature;
}

}  // namespace attune
