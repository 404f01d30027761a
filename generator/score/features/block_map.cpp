// SPDX-License-Identifier: Apache-2.0
// See features.hpp.
#include "generator/score/features/features.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "generator/score/language/parse.hpp"
#include "templates/shared/block_map.h"

namespace attune {
namespace {

constexpr const char* kAxes = "[batch, num_heads_q, seqlen_q / 64, seqlen_kv / 16]";

bool hides(const SpecFields& spec) { return spec.scores.block_map == BlockMapUse::kHides; }

void check(const Problem& p) {
  if (p.scores.block_map == BlockMapUse::kSkips && !has_mask_program(p))
    throw Error(ErrorCode::kInvalidArgument,
                "block_map is skips, but there is nothing to skip; must be hides if the map is "
                "itself the mask, else the problem must have mask_mod, mask_tensor, key_lengths, "
                "documents, prefix or chunk");
  if (p.scores.block_map == BlockMapUse::kSkips && map_capture(p) >= kMaxScoreCaptures)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "block_map is {}, and programs capture {} tensors; captures and map must be at most {}",
            block_map_use_name(p.scores.block_map), map_capture(p), kMaxScoreCaptures));
}

score::Program program(const SpecFields&) {
  return score::parse(
      fmt::format("return block_map[batch][head][floordiv(q_idx, {})][floordiv(kv_idx, {})] != 0;",
                  kGranuleRows, kGranuleKeys),
      score::Kind::kMask, {{{"block_map", CaptureType::kUint8, 4}}, {}}, "block_map");
}

// Returns a sample with squares of 128 rows and keys. A tenth are visible: those on the diagonal,
// and others chosen by a hash.
double sample_hiding(const std::vector<int64_t>& at, std::mt19937_64&) {
  const auto row = static_cast<uint64_t>(at[2] * kGranuleRows / 128);
  const auto key = static_cast<uint64_t>(at[3] * kGranuleKeys / 128);
  const uint64_t mixed = (row * 0x9e3779b97f4a7c15u ^ (key + 1) * 0xc2b2ae3d27d4eb4fu) *
                         (static_cast<uint64_t>(at[1]) * 2 + 0xd6e8feb86659fd93u);
  return row == key || (mixed >> 32) % 10 == 0 ? kSeenWhole : 0;
}

// Always returns "partly visible", which is valid for any mask.
double sample_skipping(const std::vector<int64_t>&, std::mt19937_64&) { return kSeenInPart; }

std::vector<CaptureSpec> captures(const Problem& p) { return {block_map_capture_of(p)}; }

}  // namespace

CaptureSpec block_map_capture_of(const Problem& p) {
  return {"block_map",
          CaptureType::kUint8,
          {p.batch, p.num_heads_q, (p.seqlen_q + kGranuleRows - 1) / kGranuleRows,
           (p.seqlen_kv + kGranuleKeys - 1) / kGranuleKeys},
          kAxes,
          hides(p) ? sample_hiding : sample_skipping};
}

const ScoreFeature& block_map_feature() {
  static const ScoreFeature feature{
      .field = "block_map",
      .step = ScoreStep::kMask,
      .is_on = hides,
      .validate = check,
      .program = program,
      .captures = captures,
      .draw = [](std::mt19937_64&, Problem* p) { p->scores.block_map = BlockMapUse::kHides; }};
  return feature;
}

}  // namespace attune
