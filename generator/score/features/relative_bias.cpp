// SPDX-License-Identifier: Apache-2.0
// Score feature relative_bias: adds a table [num_heads_q, seqlen_q + seqlen_kv - 1], indexed by kv
// - q. The first entry is for the last row and the first key.
#include "generator/score/features/features.hpp"

#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.relative_bias != ScoreTensor::kNone; }

score::Program program(const SpecFields& spec) {
  return score::parse(
      "return score + relative_bias[head][kv_idx - q_idx + seqlen_q - 1];", score::Kind::kScore,
      {{{"relative_bias", capture_type(spec.scores.relative_bias), 2}}, {}}, "relative_bias");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  return {{"relative_bias",
           capture_type(p.scores.relative_bias),
           {p.num_heads_q, std::max<int64_t>(p.seqlen_q + p.seqlen_kv - 1, 0)},
           "[num_heads_q, seqlen_q + seqlen_kv - 1]",
           sample_normal,
           false,
           {CallAxis::kNone, CallAxis::kDistances}}};
}

}  // namespace

const ScoreFeature& relative_bias_feature() {
  static const ScoreFeature feature{.field = "relative_bias",
                                    .step = ScoreStep::kBias,
                                    .is_on = is_on,
                                    .program = program,
                                    .captures = captures,
                                    .draw = [](std::mt19937_64& random, Problem* p) {
                                      p->scores.relative_bias = draw_score_tensor(random);
                                    }};
  return feature;
}

}  // namespace attune
