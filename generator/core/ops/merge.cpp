// SPDX-License-Identifier: Apache-2.0
// See ops.hpp.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

void check(const Problem& p) {
  for (const Dtype dtype : {p.dtype_q, p.dtype_kv, p.dtype_o})
    if (is_8_bit(dtype))
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("dtype is {}; op merge joins and writes bf16, fp16 and fp32",
                              dtype_name(dtype)));
  check_one_shape(p, "merge");
  check_no_mask(p, "merge");
  check_no_fp8_options(p, "merge");
  check_no_score_features(p, "merge");
}

OperandSpec state(const Problem& p, Role role, const char* name, Dtype dtype) {
  return {role, name, dtype, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk};
}

// One number per row and head, declared as scale factors for blocks of one row.
OperandSpec lse_of(const Problem& p, Role role, const char* name) {
  OperandSpec lse{role, name, Dtype::kFp32, p.batch, p.seqlen_q, p.num_heads_q};
  lse.block = 1;
  return lse;
}

OperandList operands(const Problem& p) {
  OperandSpec o = state(p, Role::kO, "o", p.dtype_o);
  o.written = true;
  return {state(p, Role::kQ, "q", p.dtype_q),
          state(p, Role::kK, "k", p.dtype_kv),
          lse_of(p, Role::kQScale, "q_scale"),
          lse_of(p, Role::kKScale, "k_scale"),
          o,
          {Role::kLse, "lse", Dtype::kFp32, p.batch, p.seqlen_q, p.num_heads_q, 1, false, true}};
}

double no_flops(const Problem&) { return 0; }

}  // namespace

Problem merge_problem(Dtype first, Dtype second, Dtype result, int head_dim, int num_heads,
                      int64_t rows) {
  Problem p;
  p.op = Op::kMerge;
  p.dtype_q = first;
  p.dtype_kv = second;
  p.dtype_o = result;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.num_heads_q = p.num_heads_kv = num_heads;
  p.seqlen_q = p.seqlen_kv = rows;
  return p;
}

const OpDescription& merge_op() {
  static const OpDescription op{Op::kMerge, "merge", "", check, operands, no_flops};
  return op;
}

}  // namespace attune
