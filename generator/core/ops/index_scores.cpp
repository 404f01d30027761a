// SPDX-License-Identifier: Apache-2.0
// Op index_scores: the scores by which an indexer chooses keys, as in DeepSeek V3.2: for each row
// and key, the sum over heads of weight * max(0, q k).
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

void check(const Problem& p) {
  if (p.dtype_kv != p.dtype_q || p.dtype_q == Dtype::kE5m2 || p.dtype_q == Dtype::kInt8)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype is {} and dtype_kv is {}; op index_scores reads q and k in one "
                            "type, fp32, bf16, fp16 or e4m3",
                            dtype_name(p.dtype_q), dtype_name(p.dtype_kv)));
  if (p.dtype_o != Dtype::kFp32)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype_o is {}; op index_scores writes fp32", dtype_name(p.dtype_o)));
  check_equal("head_dim_v", p.head_dim_v, "head_dim_qk", p.head_dim_qk, "index_scores");
  check_choosing(p, "index_scores");
}

OperandList operands(const Problem& p) {
  OperandSpec weights{Role::kQScale, "q_scale", Dtype::kFp32, p.batch, p.seqlen_q, p.num_heads_q};
  weights.block = 1;
  OperandSpec factors{Role::kKScale, "k_scale", p.dtype_kv, p.batch, p.seqlen_kv, p.num_heads_kv};
  factors.block = 1;
  factors.optional = true;
  OperandSpec o{Role::kO, "o", Dtype::kFp32, p.batch, p.seqlen_q, p.num_heads_kv, p.seqlen_kv};
  o.written = true;
  return {{Role::kQ, "q", p.dtype_q, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk},
          {Role::kK, "k", p.dtype_kv, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk},
          weights,
          factors,
          o,
          key_lengths_of_rows(p)};
}

double flops(const Problem& p) {
  return 2.0 * static_cast<double>(p.batch) * static_cast<double>(p.seqlen_q) * p.num_heads_q *
         static_cast<double>(p.seqlen_kv) * p.head_dim_qk;
}

}  // namespace

const OpDescription& index_scores_op() {
  static const OpDescription op{Op::kIndexScores, "index_scores", "", check, operands, flops};
  return op;
}

}  // namespace attune
