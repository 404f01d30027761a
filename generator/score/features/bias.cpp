// SPDX-License-Identifier: Apache-2.0
// Score feature bias: adds a tensor [batch, num_heads_q, seqlen_q, seqlen_kv]; values at or below
// -1e30 hide the key.
#include "generator/score/features/features.hpp"

#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.bias != ScoreTensor::kNone; }

score::Program program(const SpecFields& spec) {
  return score::parse(
      "float b = bias[batch][head][q_idx][kv_idx];"
      "return b <= -1e30 ? -INFINITY : score + b;",
      score::Kind::kScore, {{{"bias", capture_type(spec.scores.bias), 4}}, {}}, "bias");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  return {{"bias",
           capture_type(p.scores.bias),
           {p.batch, p.num_heads_q, p.seqlen_q, p.seqlen_kv},
           "[batch, num_heads_q, seqlen_q, seqlen_kv]",
           sample_normal,
           false,
           {CallAxis::kNone, CallAxis::kNone, CallAxis::kRows, CallAxis::kKeys}}};
}

}  // namespace

const ScoreFeature& bias_feature() {
  static const ScoreFeature feature{.field = "bias",
                                    .step = ScoreStep::kBias,
                                    .is_on = is_on,
                                    .program = program,
                                    .captures = captures,
                                    .draw = [](std::mt19937_64& random, Problem* p) {
                                      p->scores.bias = draw_score_tensor(random);
                                    }};
  return feature;
}

}  // namespace attune
