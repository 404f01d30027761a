// SPDX-License-Identifier: Apache-2.0
// Score features score_mod and mask_mod: programs that callers give (user_program.hpp).
#include "generator/score/features/features.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/positions.hpp"
#include "generator/score/language/user_program.hpp"

namespace attune {
namespace {

const score::Program& score_mod(const SpecFields& spec) {
  return user_program(spec.scores.score_mod, score::Kind::kScore, "score_mod").program;
}

const score::Program& mask_mod(const SpecFields& spec) {
  return user_program(spec.scores.mask_mod, score::Kind::kMask, "mask_mod").program;
}

// Halves the largest extents until a capture fits into some gigabytes. Smaller extents are safe,
// since loads clamp.
void keep_in_memory(std::vector<int64_t>* extents) {
  constexpr double kMostElements = 1LL << 29;
  const auto count = [&] {
    return std::accumulate(
        extents->begin(), extents->end(), 1.0,
        [](double product, int64_t extent) { return product * static_cast<double>(extent); });
  };
  while (count() > kMostElements) *std::max_element(extents->begin(), extents->end()) /= 2;
}

// Returns the extent of an axis, for sample tensors; calls give the real extents. For an index that
// is one name, returns the problem's extent of that name, else the sum of both lengths.
int64_t reach(const score::Program& program, const Problem& p, int32_t index) {
  const score::Node& node = program.nodes()[static_cast<size_t>(index)];
  if (const int64_t divisor = score::divisor_of(program, index); divisor > 0)
    return reach(program, p, node.operands[0]) / divisor + 1;
  if (node.operation == score::Operation::kName) switch (static_cast<score::Name>(node.index)) {
      case score::Name::kBatch:
        return p.batch;
      case score::Name::kHead:
        return p.num_heads_q;
      case score::Name::kKvHead:
        return p.num_heads_kv;
      case score::Name::kQIdx:
        return p.seqlen_q;
      case score::Name::kKvIdx:
        return p.seqlen_kv;
      default:
        break;
    }
  return p.seqlen_q + p.seqlen_kv;
}

double sample_whole(const std::vector<int64_t>& at, std::mt19937_64&) {
  return at.empty() ? 1 : sample_group(at.back());
}

double sample_flag(const std::vector<int64_t>& at, std::mt19937_64&) {
  return at.empty() ? 1 : std::fmod(sample_group(at.back()), 2);
}

// Returns a sample of a mask over blocks: a tenth are visible, those on the diagonal and others
// chosen by a hash, as in maps that callers give (block_map.cpp).
double sample_blocks(const std::vector<int64_t>& at, std::mt19937_64&) {
  const auto row = static_cast<uint64_t>(at[at.size() - 2]), key = static_cast<uint64_t>(at.back());
  const uint64_t mixed =
      (row * 0x9e3779b97f4a7c15u ^ (key + 1) * 0xc2b2ae3d27d4eb4fu) * 0xd6e8feb86659fd93u;
  return row == key || (mixed >> 32) % 10 == 0 ? 1 : 0;
}

// True if the last two indices are block numbers of rows and of keys.
bool is_of_blocks(const score::Program& program, const score::Node& load) {
  if (load.num_operands < 2) return false;
  const std::vector<score::Dependences> depends = score::dependences_of(program);
  const auto is_block = [&](int index, score::Dependences of) {
    return score::divisor_of(program, index) > 1 &&
           (depends[static_cast<size_t>(index)] & (score::kOnQ | score::kOnKv)) == of;
  };
  return is_block(load.operands[load.num_operands - 2U], score::kOnQ) &&
         is_block(load.operands[load.num_operands - 1U], score::kOnKv);
}

auto sample_of(CaptureType type) {
  if (score::type_of(type) == score::Type::kFloat) return sample_normal;
  return type == CaptureType::kUint8 || type == CaptureType::kBool ? sample_flag : sample_whole;
}

std::vector<CaptureSpec> captures_of(const score::Program& program, const Problem& problem) {
  std::vector<CaptureSpec> captures;
  for (const score::Capture& capture : program.captures())
    captures.push_back({capture.name, capture.type,
                        std::vector<int64_t>(static_cast<size_t>(capture.rank), 1), "",
                        sample_of(capture.type), true});
  for (const score::Node& node : program.nodes()) {
    if (node.operation != score::Operation::kLoad) continue;
    CaptureSpec& capture = captures[static_cast<size_t>(node.index)];
    if (capture.sample == sample_flag && is_of_blocks(program, node))
      capture.sample = sample_blocks;
    for (size_t i = 0; i < capture.extents.size(); ++i)
      capture.extents[i] = std::max(capture.extents[i], reach(program, problem, node.operands[i]));
  }
  for (CaptureSpec& capture : captures) keep_in_memory(&capture.extents);
  return captures;
}

}  // namespace

const ScoreFeature& score_mod_feature() {
  static const ScoreFeature feature{
      .field = "score_mod",
      .step = ScoreStep::kProgram,
      .is_on = [](const SpecFields& spec) { return static_cast<bool>(spec.scores.score_mod); },
      .program = [](const SpecFields& spec) { return score_mod(spec); },
      .captures = [](const Problem& p) { return captures_of(score_mod(p), p); },
      .bends = true,
      .over_caches = true};
  return feature;
}

const ScoreFeature& mask_mod_feature() {
  static const ScoreFeature feature{
      .field = "mask_mod",
      .step = ScoreStep::kMask,
      .is_on = [](const SpecFields& spec) { return static_cast<bool>(spec.scores.mask_mod); },
      .program = [](const SpecFields& spec) { return mask_mod(spec); },
      .captures = [](const Problem& p) { return captures_of(mask_mod(p), p); },
      .over_caches = true};
  return feature;
}

}  // namespace attune
