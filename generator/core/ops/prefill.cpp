// SPDX-License-Identifier: Apache-2.0
// Op prefill: o = softmax(scale q k^T + mask) v. Optionally also the log-sum-exp of each row, and
// the largest logit of each head: the maximum of scale q k^T over all rows of all batch entries and
// the keys that they see.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kUnsupported, message);
}

// Allows e4m3 Q with K and V of either 8-bit type; O has 16 bits, or fp32 from the reference
// kernels.
void check_fp8_dtypes(const Problem& p) {
  if (p.dtype_q != Dtype::kE4m3)
    refuse(
        fmt::format("dtype_q is {}; with 8-bit operands it must be e4m3", dtype_name(p.dtype_q)));
  if (!is_8_bit(p.dtype_kv))
    refuse(fmt::format("dtype_kv is {} and dtype_q is e4m3; must be e4m3 or e5m2",
                       dtype_name(p.dtype_kv)));
  if (is_8_bit(p.dtype_o))
    refuse(fmt::format("dtype_o is {}; must be bf16 or fp16", dtype_name(p.dtype_o)));
}

void check_dtypes(const Problem& p) {
  if (is_8_bit(p.dtype_q) || is_8_bit(p.dtype_kv)) return check_fp8_dtypes(p);
  if (p.dtype_kv != p.dtype_q)
    refuse(fmt::format("dtype_kv is {} and dtype_q is {}; they must be equal",
                       dtype_name(p.dtype_kv), dtype_name(p.dtype_q)));
  if (p.dtype_o != p.dtype_q)
    refuse(fmt::format("dtype_o is {} and dtype_q is {}; they must be equal", dtype_name(p.dtype_o),
                       dtype_name(p.dtype_q)));
}

// Kernels keep scores as they are after the last feature, so no feature may change them.
void check_max_logits(const Problem& p) {
  if (!p.max_logits) return;
  if (is_8_bit(p))
    refuse(fmt::format("max_logits is 1 and dtype_q is {}; must be fp32, bf16 or fp16",
                       dtype_name(p.dtype_q)));
  for (const ScoreFeature* feature : score_features())
    if (feature->step != ScoreStep::kMask && feature->is_on(p))
      refuse(
          fmt::format("max_logits is 1 and {} is given; the largest logit is that of scale q k^T "
                      "alone: no feature may change scores",
                      feature->field));
}

void check(const Problem& p) {
  check_dtypes(p);
  if (p.quantise.rotation != Rotation::kNone)
    throw Error(ErrorCode::kInvalidArgument,
                "rotation is hadamard; must be none: the quantise op rotates, attention takes "
                "rotated operands as they are");
  check_max_logits(p);
}

OperandList operands(const Problem& p) {
  const bool transposed = p.fp8.v_layout == VLayout::kTransposed;
  const int64_t b = p.batch, rows = p.seqlen_q, keys = p.seqlen_kv;
  const int heads = p.num_heads_q, heads_kv = p.num_heads_kv;
  const int block = p.fp8.scale_block_q, block_kv = p.fp8.scale_block_kv;
  OperandList all{{Role::kQ, "q", p.dtype_q, b, rows, heads, p.head_dim_qk},
                  {Role::kK, "k", p.dtype_kv, b, keys, heads_kv, p.head_dim_qk},
                  {Role::kV, "v", p.dtype_kv, b, keys, heads_kv, p.head_dim_v, transposed},
                  {Role::kO, "o", p.dtype_o, b, rows, heads, p.head_dim_v, false, true},
                  {Role::kLse, "lse", Dtype::kFp32, b, rows, heads, 1, false, true, true}};
  OperandSpec q_scale{Role::kQScale, "q_scale", p.dtype_q, b, rows, heads};
  q_scale.heads_per_factor = block > 0 || heads_kv < 1 ? 1 : heads / heads_kv;
  q_scale.block = block;
  OperandSpec k_scale{Role::kKScale, "k_scale", p.dtype_kv, b, keys, heads_kv};
  k_scale.block = block_kv;
  OperandSpec v_scale = k_scale;
  v_scale.role = Role::kVScale;
  v_scale.name = "v_scale";
  for (OperandSpec* scale : {&q_scale, &k_scale, &v_scale}) {
    scale->optional = true;
    all.add(*scale);
  }
  if (p.max_logits) {
    OperandSpec logits{Role::kOScale, "o_scale", Dtype::kFp32, 1, 1, heads};
    logits.written = true;
    all.add(logits);
  }
  return all;
}

}  // namespace

const OpDescription& prefill_op() {
  static const OpDescription op{.op = Op::kPrefill,
                                .name = "prefill",
                                .alias = "",
                                .validate = check,
                                .operands = operands,
                                .useful_flops = visible_flops,
                                .has_dropout = true,
                                .has_max_logits = true};
  return op;
}

}  // namespace attune
