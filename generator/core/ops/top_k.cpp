// SPDX-License-Identifier: Apache-2.0
// Op top_k: for each row of scores, the indices of the listed_keys largest. attune_types.h states
// ties, infinities and NaN.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

// Unused fields must have their defaults, so that equal problems have one text.
void check(const Problem& p) {
  const Problem defaults;
  if (is_8_bit(p.dtype_q))
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype is {}; op top_k reads scores in fp32, bf16 or fp16",
                            dtype_name(p.dtype_q)));
  if (p.dtype_kv != p.dtype_q || p.dtype_o != p.dtype_q)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("dtype_kv is {} and dtype_o is {}; op top_k has one type: must be {}",
                            dtype_name(p.dtype_kv), dtype_name(p.dtype_o), dtype_name(p.dtype_q)));
  check_equal("head_dim_qk", p.head_dim_qk, "the default", defaults.head_dim_qk, "top_k");
  check_equal("head_dim_v", p.head_dim_v, "the default", defaults.head_dim_v, "top_k");
  check_equal("num_heads_kv", p.num_heads_kv, "num_heads_q", p.num_heads_q, "top_k");
  check_choosing(p, "top_k");
}

// Indices and counts are int32, declared with the floating-point type of their size.
OperandList operands(const Problem& p) {
  OperandSpec indices{Role::kO,   "o",           Dtype::kFp32,   p.batch,
                      p.seqlen_q, p.num_heads_q, keys_of_list(p)};
  indices.written = true;
  OperandSpec counts{Role::kLse, "lse", Dtype::kFp32, p.batch, p.seqlen_q, p.num_heads_q};
  counts.written = counts.optional = true;
  return {{Role::kQ, "q", p.dtype_q, p.batch, p.seqlen_q, p.num_heads_q, p.seqlen_kv},
          indices,
          counts,
          key_lengths_of_rows(p)};
}

double no_flops(const Problem&) { return 0; }

}  // namespace

int64_t keys_of_list(const Shape& shape) {
  return shape.listed_keys > 0 ? shape.listed_keys : shape.seqlen_kv;
}

void check_choosing(const Problem& p, const char* op) {
  if (p.window_left >= 0 || p.window_right >= 0)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("window_left is {} and window_right is {}; op {} has no window: must be "
                    "-1 and -1",
                    p.window_left, p.window_right, op));
  check_no_fp8_options(p, op);
  check_no_score_features(p, op);
}

OperandSpec key_lengths_of_rows(const Problem& p) {
  OperandSpec lengths{Role::kVScale, "v_scale", Dtype::kFp32, p.batch, p.seqlen_q, p.num_heads_q};
  lengths.optional = true;
  lengths.block = 1;
  lengths.most_number = p.seqlen_kv;
  return lengths;
}

const OpDescription& top_k_op() {
  static const OpDescription op{.op = Op::kTopK,
                                .name = "top_k",
                                .alias = "",
                                .validate = check,
                                .operands = operands,
                                .useful_flops = no_flops,
                                .makes_lists = true,
                                .has_head_dim = false};
  return op;
}

}  // namespace attune
