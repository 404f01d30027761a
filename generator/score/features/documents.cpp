// SPDX-License-Identifier: Apache-2.0
// Score feature documents: hides keys whose document id differs from the row's.
#include "generator/score/features/features.hpp"

#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.documents; }

score::Program program(const SpecFields&) {
  return score::parse(
      "return documents_q[batch][q_idx] == documents_kv[batch][kv_idx];", score::Kind::kMask,
      {{{"documents_q", CaptureType::kInt32, 2}, {"documents_kv", CaptureType::kInt32, 2}}, {}},
      "documents");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  const auto sample = [](const std::vector<int64_t>& at, std::mt19937_64&) {
    return sample_group(at[1] + 17 * at[0]);
  };
  return {{"documents_q",
           CaptureType::kInt32,
           {p.batch, p.seqlen_q},
           "[batch, seqlen_q]",
           sample,
           false,
           {CallAxis::kNone, CallAxis::kRows}},
          {"documents_kv",
           CaptureType::kInt32,
           {p.batch, p.seqlen_kv},
           "[batch, seqlen_kv]",
           sample,
           false,
           {CallAxis::kNone, CallAxis::kKeys}}};
}

}  // namespace

const ScoreFeature& documents_feature() {
  static const ScoreFeature feature{
      .field = "documents",
      .step = ScoreStep::kMask,
      .is_on = is_on,
      .program = program,
      .captures = captures,
      .draw = [](std::mt19937_64&, Problem* p) { p->scores.documents = true; }};
  return feature;
}

}  // namespace attune
