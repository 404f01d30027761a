// SPDX-License-Identifier: Apache-2.0
// See ops.hpp. With P = exp(z - lse), where z are the scores after scale and
// features, and delta = rowsum(dout * o) - dlse:
//   dV = P^T dout,  dS = P * (dout V^T - delta) * dz/ds,  dQ = scale * dS K,  dK = scale * dS^T Q
// With key_indices P has an element for each entry of a row's list. With v_in_k dV is added to the
// first columns of dK.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/analysis/rewrites.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/language/user_program.hpp"

namespace attune {
namespace {

// Returns the axes of a gradient's tensor, as bits of Repeats. Each may be repeated.
int axes_of(ScoreGradient gradient) {
  const auto bits = [](auto... axes) { return (static_cast<int>(axes) | ... | 0); };
  switch (layout_of(gradient)) {
    case ScoreGradient::kBias:
      return bits(Repeats::kBatch, Repeats::kHeads, Repeats::kRows, Repeats::kKeys);
    case ScoreGradient::kRelativeBias:
      return bits(Repeats::kHeads);
    case ScoreGradient::kAlibi:
      return bits(Repeats::kBatch, Repeats::kHeads);
    default:
      return 0;
  }
}

void check_load(const Problem& p) {
  if (!p.scores.score_mod) return;
  const auto loads = static_cast<int>(
      score::float_loads(user_program(p.scores.score_mod, score::Kind::kScore, "score_mod").program)
          .size());
  if (p.backward.load < 0 || p.backward.load >= loads)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "load is {}; score_mod has {} loads of floats; must be a load's number, counted from 0",
            p.backward.load, loads));
}

void check_score_gradient(const Problem& p) {
  if (p.backward.score_gradient == ScoreGradient::kNone) return;
  const std::string_view name = score_gradient_name(p.backward.score_gradient);
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  if (is_of_load(p.backward.score_gradient)) check_load(p);
  const bool there =
      is_of_load(p.backward.score_gradient)               ? static_cast<bool>(p.scores.score_mod)
      : p.backward.score_gradient == ScoreGradient::kBias ? p.scores.bias != ScoreTensor::kNone
      : p.backward.score_gradient == ScoreGradient::kRelativeBias
          ? p.scores.relative_bias != ScoreTensor::kNone
      : p.backward.score_gradient == ScoreGradient::kAlibi ? p.scores.alibi
                                                           : p.scores.sinks != ScoreTensor::kNone;
  if (!there && is_of_load(p.backward.score_gradient))
    refuse(fmt::format(
        "score_gradient is {}, but there is no score_mod; give one that loads floats", name));
  if (!there)
    refuse(
        fmt::format("score_gradient is {}, but the problem has no {}: must be none", name, name));
  if (p.backward.accumulate)
    refuse(fmt::format("accumulate is 1 and score_gradient is {}; give only one of them", name));
  if (p.backward.gradients != Gradients::kAll)
    refuse(fmt::format("gradients is {} and score_gradient is {}; give only one of them",
                       gradients_text(p.backward.gradients), name));
  const int more = static_cast<int>(p.backward.repeats) & ~axes_of(p.backward.score_gradient);
  if (more != 0)
    refuse(fmt::format("repeats is {}; for {} it must be letters of {}",
                       repeats_text(p.backward.repeats), name,
                       repeats_text(static_cast<Repeats>(axes_of(p.backward.score_gradient)))));
}

// Repeated axes have extent 1.
OperandSpec dscores(const Problem& p) {
  const auto extent = [&](Repeats axis, int64_t whole) {
    return repeats(p.backward.repeats, axis) ? std::min<int64_t>(whole, 1) : whole;
  };
  const int64_t batch = extent(Repeats::kBatch, p.batch);
  const int64_t heads = extent(Repeats::kHeads, p.num_heads_q);
  OperandSpec made{Role::kDscores, "gradients.dscores", Dtype::kFp32, 1, 1, 1, heads};
  const ScoreGradient layout = layout_of(p.backward.score_gradient);
  if (layout == ScoreGradient::kBias) {
    made.batch = batch;
    made.rows = extent(Repeats::kRows, p.seqlen_q);
    made.heads = heads;
    made.columns = extent(Repeats::kKeys, p.seqlen_kv);
  } else if (layout == ScoreGradient::kRelativeBias) {
    made.heads = heads;
    made.columns = std::max<int64_t>(p.seqlen_q + p.seqlen_kv - 1, 0);
  } else if (layout == ScoreGradient::kAlibi) {
    made.batch = batch;
  }
  made.written = true;
  return made;
}

// Refuses what the gradients over lists of keys do not have yet. A list names keys by their
// positions in the row's batch entry.
void check_lists(const Problem& p) {
  if (p.cache.key_indices == KeyIndices::kNone) {
    if (p.cache.v_in_k)
      throw Error(ErrorCode::kUnsupported,
                  "v_in_k is 1 and key_indices is none; op attention_backward takes v_in_k only "
                  "with key_indices: must be 0");
    return;
  }
  if (p.cache.key_indices == KeyIndices::kPlaces)
    throw Error(ErrorCode::kInvalidArgument,
                "key_indices is places; op attention_backward has no cache: must be positions");
  check_no_mask_beside_lists(p);
  const auto refuse = [](const std::string& given, const char* must) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("key_indices is positions and {}; op attention_backward over lists of "
                            "keys does not take it: must be {}",
                            given, must));
  };
  if (p.backward.gradients != Gradients::kAll)
    refuse("gradients is " + gradients_text(p.backward.gradients), "qkv");
  if (p.backward.score_gradient != ScoreGradient::kNone)
    refuse(fmt::format("score_gradient is {}", score_gradient_name(p.backward.score_gradient)),
           "none");
  if (p.backward.accumulate) refuse("accumulate is 1", "0");
  if (p.dropout > 0) refuse(fmt::format("dropout is {}", p.dropout), "0");
  for (const ScoreFeature* feature : score_features())
    if (feature->is_on(p)) refuse(feature->field + " is given", "left out");
  if (p.scores.sinks != ScoreTensor::kNone) refuse("sinks is given", "none");
}

void check(const Problem& p) {
  if (is_8_bit(p))
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype is {}; op attention_backward takes bf16, fp16 and fp32 (for a "
                            "forward with 8-bit operands, pass their values in 16 bits)",
                            dtype_name(is_8_bit(p.dtype_q) ? p.dtype_q : p.dtype_kv)));
  check_score_gradient(p);
  check_lists(p);
  for (const auto& [name, dtype] : {std::pair{"dtype_kv", p.dtype_kv}, {"dtype_o", p.dtype_o}})
    if (dtype != p.dtype_q)
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} is {} and dtype_q is {}; they must be equal", name,
                              dtype_name(dtype), dtype_name(p.dtype_q)));
}

OperandList operands(const Problem& p) {
  const int64_t b = p.batch, rows = p.seqlen_q, keys = p.seqlen_kv;
  const int heads = p.num_heads_q, heads_kv = p.num_heads_kv;
  OperandList all{
      {Role::kQ, "q", p.dtype_q, b, rows, heads, p.head_dim_qk},
      {Role::kK, "k", p.dtype_kv, b, keys, heads_kv, p.head_dim_qk},
      {Role::kV, "v", p.dtype_kv, b, keys, heads_kv, p.head_dim_v},
      {Role::kO, "o", p.dtype_o, b, rows, heads, p.head_dim_v},
      {Role::kDout, "gradients.dout", p.dtype_o, b, rows, heads, p.head_dim_v},
      {Role::kLse, "lse", Dtype::kFp32, b, rows, heads},
      {Role::kDlse, "gradients.dlse", Dtype::kFp32, b, rows, heads, 1, false, false, true}};
  if (p.backward.score_gradient != ScoreGradient::kNone) {
    all.add(dscores(p));
    return all;
  }
  const auto add = [&](Gradients one, OperandSpec gradient) {
    gradient.written = true;
    gradient.added_to = p.backward.accumulate;
    if (p.backward.accumulate) gradient.dtype = Dtype::kFp32;
    if (p.cache.v_in_k && one == Gradients::kV) return;  // dk has it
    if (asks(p.backward.gradients, one)) all.add(gradient);
  };
  add(Gradients::kQ, {Role::kDq, "gradients.dq", p.dtype_q, b, rows, heads, p.head_dim_qk});
  add(Gradients::kK, {Role::kDk, "gradients.dk", p.dtype_kv, b, keys, heads_kv, p.head_dim_qk});
  add(Gradients::kV, {Role::kDv, "gradients.dv", p.dtype_kv, b, keys, heads_kv, p.head_dim_v});
  return all;
}

// Counts S, and the other four products as far as the requested gradients need them.
double flops(const Problem& p) {
  if (p.backward.score_gradient == ScoreGradient::kSinks) return 0;
  if (p.backward.score_gradient != ScoreGradient::kNone) return visible_flops(p);  // S and dP
  const bool q = asks(p.backward.gradients, Gradients::kQ),
             k = asks(p.backward.gradients, Gradients::kK);
  const int columns_qk = 1 + (q ? 1 : 0) + (k ? 1 : 0);
  const int columns_v = (q || k ? 1 : 0) + (asks(p.backward.gradients, Gradients::kV) ? 1 : 0);
  const double both = p.head_dim_qk + p.head_dim_v;  // for the forward pass's two products
  return seen_flops(p) * (columns_qk * p.head_dim_qk + columns_v * p.head_dim_v) / both;
}

}  // namespace

std::vector<Problem> gradient_problems(const Problem& forward) {
  if (forward.op != Op::kPrefill) return {};
  Problem backward = forward;
  backward.op = Op::kAttentionBackward;
  backward.max_logits = false;
  if (is_8_bit(forward)) {
    backward.dtype_q = backward.dtype_kv = backward.dtype_o;
    backward.fp8 = {};
  }
  std::vector<Problem> all{backward};
  const auto add = [&](bool there, ScoreGradient of, Repeats repeats) {
    if (!there) return;
    Problem problem = backward;
    problem.backward.score_gradient = of;
    problem.backward.repeats = repeats;
    all.push_back(problem);
  };
  // Assumes that training uses one bias for all batch entries, so its gradient is summed over the
  // batch. The relative bias and the sinks have no batch axis.
  add(forward.scores.bias != ScoreTensor::kNone, ScoreGradient::kBias,
      forward.batch > 1 ? Repeats::kBatch : Repeats::kNone);
  add(forward.scores.relative_bias != ScoreTensor::kNone, ScoreGradient::kRelativeBias,
      Repeats::kNone);
  add(forward.scores.sinks != ScoreTensor::kNone, ScoreGradient::kSinks, Repeats::kNone);
  return all;
}

const OpDescription& attention_backward_op() {
  static const OpDescription op{.op = Op::kAttentionBackward,
                                .name = "attention_backward",
                                .alias = "backward",
                                .validate = check,
                                .operands = operands,
                                .useful_flops = flops,
                                .has_gradients = true,
                                .has_dropout = true,
                                .takes_lists = true};
  return op;
}

}  // namespace attune
