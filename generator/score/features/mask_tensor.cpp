// SPDX-License-Identifier: Apache-2.0
// Score feature mask_tensor: hides keys for which a bool tensor [batch, num_heads_q, seqlen_q,
// seqlen_kv] is false.
#include "generator/score/features/features.hpp"

#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.mask_tensor; }

score::Program program(const SpecFields&) {
  return score::parse("return mask_tensor[batch][head][q_idx][kv_idx];", score::Kind::kMask,
                      {{{"mask_tensor", CaptureType::kBool, 4}}, {}}, "mask_tensor");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  return {{"mask_tensor",
           CaptureType::kBool,
           {p.batch, p.num_heads_q, p.seqlen_q, p.seqlen_kv},
           "[batch, num_heads_q, seqlen_q, seqlen_kv]",
           [](const std::vector<int64_t>&, std::mt19937_64& random) {
             return random() % 4 == 0 ? 0.0 : 1.0;
           },
           false,
           {CallAxis::kNone, CallAxis::kNone, CallAxis::kRows, CallAxis::kKeys}}};
}

}  // namespace

const ScoreFeature& mask_tensor_feature() {
  static const ScoreFeature feature{
      .field = "mask_tensor",
      .step = ScoreStep::kMask,
      .is_on = is_on,
      .program = program,
      .captures = captures,
      .draw = [](std::mt19937_64&, Problem* p) { p->scores.mask_tensor = true; }};
  return feature;
}

}  // namespace attune
