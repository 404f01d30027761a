// SPDX-License-Identifier: Apache-2.0
// See attention_backward.hpp. With P = exp(z - lse), z the scores behind scale and features, and
// delta = rowsum(dout * o) - dlse:
//   dV = P^T dout,  dS = P * (dout V^T - delta) * dz/ds,  dQ = scale * dS K,  dK = scale * dS^T Q
#include "generator/core/ops/attention_backward.hpp"

#include <fmt/format.h>

#include "generator/core/error.hpp"
#include "generator/core/visibility.hpp"

namespace attune {
namespace {

void check(const Problem& p) {
  if (is_fp8(p))
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype is {}; op attention_backward takes bf16, fp16 and fp32 (of a "
                            "forward with 8-bit operands: their values in 16 bits)",
                            dtype_name(is_fp8(p.dtype_q) ? p.dtype_q : p.dtype_kv)));
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
  const auto add = [&](Gradients one, OperandSpec gradient) {
    gradient.written = true;
    if (asks(p.gradients, one)) all.add(gradient);
  };
  add(Gradients::kQ, {Role::kDq, "gradients.dq", p.dtype_q, b, rows, heads, p.head_dim_qk});
  add(Gradients::kK, {Role::kDk, "gradients.dk", p.dtype_kv, b, keys, heads_kv, p.head_dim_qk});
  add(Gradients::kV, {Role::kDv, "gradients.dv", p.dtype_kv, b, keys, heads_kv, p.head_dim_v});
  return all;
}

// Of five products, S and those that the asked gradients need.
double flops(const Problem& p) {
  const bool q = asks(p.gradients, Gradients::kQ), k = asks(p.gradients, Gradients::kK);
  const int columns_qk = 1 + (q ? 1 : 0) + (k ? 1 : 0);
  const int columns_v = (q || k ? 1 : 0) + (asks(p.gradients, Gradients::kV) ? 1 : 0);
  const double both = p.head_dim_qk + p.head_dim_v;  // of the forward's two
  return visible_flops(p) * (columns_qk * p.head_dim_qk + columns_v * p.head_dim_v) / both;
}

}  // namespace

const OpDescription& attention_backward_op() {
  static const OpDescription op{.op = Op::kAttentionBackward,
                                .name = "attention_backward",
                                .alias = "backward",
                                .validate = check,
                                .operands = operands,
                                .useful_flops = flops,
                                .has_gradients = true,
                                .has_dropout = true};
  return op;
}

}  // namespace attune
