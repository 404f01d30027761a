// SPDX-License-Identifier: Apache-2.0
// Score feature key_lengths: hides keys with kv_idx >= key_lengths[batch].
#include "generator/score/features/features.hpp"

#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

bool is_on(const SpecFields& spec) { return spec.scores.key_lengths; }

score::Program program(const SpecFields&) {
  return score::parse("return kv_idx < key_lengths[batch];", score::Kind::kMask,
                      {{{"key_lengths", CaptureType::kInt32, 1}}, {}}, "key_lengths");
}

std::vector<CaptureSpec> captures(const Problem& p) {
  return {{"key_lengths",
           CaptureType::kInt32,
           {p.batch},
           "[batch]",
           [](const std::vector<int64_t>& at, std::mt19937_64& random) {
             return static_cast<double>(random() % 300 + static_cast<uint64_t>(at[0]));
           }}};
}

}  // namespace

const ScoreFeature& key_lengths_feature() {
  static const ScoreFeature feature{
      .field = "key_lengths",
      .step = ScoreStep::kMask,
      .is_on = is_on,
      .program = program,
      .captures = captures,
      .draw = [](std::mt19937_64&, Problem* p) { p->scores.key_lengths = true; }};
  return feature;
}

}  // namespace attune
