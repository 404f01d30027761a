// SPDX-License-Identifier: Apache-2.0
// Problems have the fields of attention, reduced to those that masks need; see ops.hpp.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/block_map.h"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

// The op reads no q, k or v. Unused fields must have their defaults, so that equal problems have
// one text.
void check(const Problem& p) {
  const Problem defaults;
  for (const Dtype dtype : {p.dtype_q, p.dtype_kv, p.dtype_o})
    if (dtype != defaults.dtype_q)
      refuse(fmt::format("dtype is {}; op block_map has no typed operands: must be {}",
                         dtype_name(dtype), dtype_name(defaults.dtype_q)));
  if (p.softmax_scale) refuse("scale is given; op block_map has no softmax");
  for (const ScoreFeature* feature : score_features())
    if (feature->step != ScoreStep::kMask && feature->is_on(p))
      refuse(fmt::format("{} is given; op block_map takes only masks", feature->field));
  if (p.scores.sinks != ScoreTensor::kNone) refuse("sinks is given; op block_map takes only masks");
  if (p.scores.block_map == BlockMapUse::kSkips)
    refuse("block_map is skips; op block_map makes such maps: must be none or hides");
  if (!has_mask_program(p))
    refuse(
        "op block_map has nothing to map; the problem must have mask_mod, mask_tensor, "
        "key_lengths, documents, prefix or chunk (mask and window need no map)");
}

// The map consists of bytes, declared with the first 8-bit type.
OperandList operands(const Problem& p) {
  return {{Role::kO, "block_map", Dtype::kE4m3, p.batch,
           (p.seqlen_q + kGranuleRows - 1) / kGranuleRows, p.num_heads_q,
           (p.seqlen_kv + kGranuleKeys - 1) / kGranuleKeys, false, true}};
}

double no_flops(const Problem&) { return 0; }

}  // namespace

Problem block_map_problem(const Problem& of) {
  const Problem defaults;
  Problem p = of;
  p.op = Op::kBlockMap;
  p.dtype_q = p.dtype_kv = p.dtype_o = defaults.dtype_q;
  p.fp8 = {};
  p.softmax_scale.reset();
  for (const ProblemField& field : problem_fields()) {
    const ScoreFeature* feature = score_feature_of(field.name);
    if (feature != nullptr && feature->step != ScoreStep::kMask) field.reset(&p);
  }
  p.scores.sinks = ScoreTensor::kNone;
  p.scores.block_map = BlockMapUse::kNone;
  if (!has_mask_program(p)) return p;  // which validate() refuses
  const MaskDependence masks = mask_dependence(p);
  const auto is_on = [](const MaskDependence::Part& part) {
    return part.directly || !part.axes.empty();
  };
  if (!is_on(masks.on_batch)) p.batch = 1;
  if (!is_on(masks.on_head)) p.num_heads_q = p.num_heads_kv = 1;
  return p;
}

const OpDescription& block_map_op() {
  static const OpDescription op{Op::kBlockMap, "block_map", "", check, operands, no_flops, true};
  return op;
}

}  // namespace attune
