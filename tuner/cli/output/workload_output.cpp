// SPDX-License-Identifier: Apache-2.0
// Prints workloads as text and JSON; see record_output.hpp.
#include "tuner/cli/output/record_output.hpp"

#include <fmt/format.h>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune::cli {
namespace {

// Returns a text such as " fast V^T blocks 64/128".
std::string fp8_text(const Problem& problem) {
  const Fp8Options& fp8 = problem.fp8;
  std::string text;
  if (is_8_bit(problem.dtype_o)) text += fmt::format(" to {}", dtype_name(problem.dtype_o));
  if (fp8.accuracy == Accuracy::kFast) text += " fast";
  if (fp8.v_layout == VLayout::kTransposed)
    text += is_8_bit(problem.dtype_o) ? " transposed" : " V^T";
  if (fp8.scale_block_q > 0 || fp8.scale_block_kv > 0)
    text += fp8.scale_block_q == fp8.scale_block_kv
                ? fmt::format(" blocks {}", fp8.scale_block_q)
                : fmt::format(" blocks {}/{}", fp8.scale_block_q, fp8.scale_block_kv);
  if (problem.quantise.rotation == Rotation::kHadamard) text += " hadamard";
  return text;
}

// Returns a text such as " packed pages of 16 cache e4m3".
std::string cache_text(const Problem& problem) {
  std::string text;
  if (!describe(problem.op).has_cache) return text;
  if (problem.cache.v_in_k) text += " latent";
  if (problem.cache.key_indices != KeyIndices::kNone)
    text += fmt::format(" lists of {} keys", problem.listed_keys);
  if (problem.cache.packed_q) text += problem.cache.packed_kv ? " packed q, k, v" : " packed q";
  if (problem.cache.page_size > 0) text += fmt::format(" pages of {}", problem.cache.page_size);
  if (problem.dtype_kv != problem.dtype_q)
    text += fmt::format(" cache {}", dtype_name(problem.dtype_kv));
  if (problem.append.rotary != ScoreTensor::kNone) text += " rotary";
  return text;
}

std::string kind_head(const LayerKind& kind) {
  const std::string count =
      kind.layers > 0 ? fmt::format("{} layer{}", kind.layers, kind.layers == 1 ? "" : "s")
                      : "number of layers not stated";
  return fmt::format("{}: {}\n", kind.name, count);
}

}  // namespace

std::string short_text(const Problem& problem) {
  const auto same_or_both = [](int64_t a, int64_t b) {
    return a == b ? std::to_string(a) : fmt::format("{}x{}", a, b);
  };
  std::string text = fmt::format("{} d{} {}/{} heads, {} x {}", dtype_name(problem.dtype_q),
                                 same_or_both(problem.head_dim_qk, problem.head_dim_v),
                                 problem.num_heads_q, problem.num_heads_kv, problem.batch,
                                 same_or_both(problem.seqlen_q, problem.seqlen_kv));
  if (problem.op != Problem{}.op) text = fmt::format("{} {}", op_name(problem.op), text);
  if (describe(problem.op).has_gradients && problem.backward.gradients != Gradients::kAll)
    text += fmt::format(" gradients={}", gradients_text(problem.backward.gradients));
  if (problem.backward.score_gradient != ScoreGradient::kNone)
    text += fmt::format(" gradient of {}", score_gradient_name(problem.backward.score_gradient));
  if (problem.backward.repeats != Repeats::kNone)
    text += fmt::format(" over {}", repeats_text(problem.backward.repeats));
  if (problem.backward.accumulate) text += " added";
  if (problem.backward.deterministic) text += " deterministic";
  if (problem.dropout > 0) text += fmt::format(" dropout={}", problem.dropout);
  if (problem.mask != Mask::kNone) text += " causal";
  if (problem.mask == Mask::kCausalTopLeft) text += " top left";
  if (problem.window_left >= 0 || problem.window_right >= 0) {
    const auto side = [](int64_t value) {
      return value < 0 ? std::string("-") : std::to_string(value);
    };
    text += fmt::format(" window {}:{}", side(problem.window_left), side(problem.window_right));
  }
  text += cache_text(problem);
  if (problem.cache.kv_factors != KvFactors::kHeads)
    text += fmt::format(" factors {}", kv_factors_name(problem.cache.kv_factors));
  else if (is_8_bit(problem))
    text += fp8_text(problem);
  else if (problem.fp8.accuracy != Accuracy::kAccurate)
    text += fmt::format(" {}", accuracy_name(problem.fp8.accuracy));
  for (const ProblemField& field : problem_fields())
    if (is_score_field(field.name) && !field.is_default(problem))
      text += fmt::format(" {}={}", field.key, field.print(problem));
  return text;
}

std::string workload_text(const Workload& workload,
                          const std::function<std::string(const Problem&)>& more) {
  const auto line = [&](const Problem& problem) {
    const auto remark = workload.remarks.find(to_text(problem));
    return fmt::format("  {}{}{}\n", short_text(problem),
                       remark == workload.remarks.end() ? "" : "  (" + remark->second + ")",
                       more ? "  " + more(problem) : "");
  };
  std::string text = fmt::format("{}: {} problem{}\n", workload.name, workload.problems.size(),
                                 workload.problems.size() == 1 ? "" : "s");
  for (const LayerKind& kind : workload.layer_kinds) {
    text += kind_head(kind);
    for (const Problem& problem : kind.problems) text += line(problem);
    for (const std::string& feature : kind.not_supported)
      text += fmt::format("  not supported, tuned without it: {}\n", feature);
    if (!kind.refused.empty()) text += fmt::format("  not supported: {}\n", kind.refused);
  }
  if (workload.layer_kinds.empty())
    for (const Problem& problem : workload.problems) text += line(problem);
  return text;
}

Json workload_json(const Workload& workload) {
  Json kinds = Json::array();
  for (const LayerKind& kind : workload.layer_kinds) {
    Json problems = Json::array();
    for (const Problem& problem : kind.problems) problems.push_back(to_text(problem));
    kinds.push_back({{"kind", kind.name},
                     {"layers", kind.layers > 0 ? Json(kind.layers) : Json(nullptr)},
                     {"problems", problems},
                     {"not_supported", kind.not_supported},
                     {"refused", kind.refused.empty() ? Json(nullptr) : Json(kind.refused)}});
  }
  Json body{{"notes", workload.notes}, {"layer_kinds", kinds}};
  if (!workload.remarks.empty()) body["remarks"] = workload.remarks;
  return body;
}

}  // namespace attune::cli
