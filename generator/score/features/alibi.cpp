// SPDX-License-Identifier: Apache-2.0
// Score feature alibi: score - slope * |distance from the diagonal|, with a slope per head, or per
// batch entry and head.
#include "generator/score/features/features.hpp"

#include <cmath>

#include "generator/core/problem/op.hpp"
#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.alibi; }

// Distances count from the diagonal of masks and windows (templates/shared/visibility.h). For ops
// with a cache, rows are positions, and the diagonal is the key with the same number.
score::Program program(const SpecFields& spec) {
  const char* text = spec.mask == Mask::kCausalTopLeft || describe(spec.op).has_cache
                         ? "return score - alibi_slopes[batch][head] * abs(q_idx - kv_idx);"
                         : "return score - alibi_slopes[batch][head] * abs(q_idx + seqlen_kv - "
                           "seqlen_q - kv_idx);";
  return score::parse(text, score::Kind::kScore, {{{"alibi_slopes", CaptureType::kFp32, 2}}, {}},
                      "alibi");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  return {{"alibi_slopes",
           CaptureType::kFp32,
           {p.batch, p.num_heads_q},
           "[batch, num_heads_q]",
           [](const std::vector<int64_t>& at, std::mt19937_64&) {
             return std::exp2(-1.0 - static_cast<double>((at[0] + at[1]) % 8));
           }}};
}

}  // namespace

const ScoreFeature& alibi_feature() {
  static const ScoreFeature feature{
      .field = "alibi",
      .step = ScoreStep::kAlibi,
      .is_on = is_on,
      .program = program,
      .captures = captures,
      .draw = [](std::mt19937_64&, Problem* p) { p->scores.alibi = true; },
      .over_caches = true};
  return feature;
}

}  // namespace attune
