// SPDX-License-Identifier: Apache-2.0
// The list of ops, and functions that work for every op; see op.hpp.
#include "generator/core/problem/op.hpp"

#include <fmt/format.h>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

std::vector<const OpDescription*>& mutable_ops() {
  static std::vector<const OpDescription*> ops{&prefill_op(),
                                               &quantise_op(),
                                               &block_map_op(),
                                               &merge_op(),
                                               &attention_backward_op(),
                                               &attention_kvcache_op(),
                                               &append_kv_op(),
                                               &top_k_op(),
                                               &index_scores_op()};
  return ops;
}

}  // namespace

const std::vector<const OpDescription*>& all_ops() { return mutable_ops(); }

void add_op(const OpDescription& op) { mutable_ops().push_back(&op); }

const OpDescription& describe(Op op, const char* argument) {
  for (const OpDescription* one : all_ops())
    if (one->op == op) return *one;
  std::string known;
  for (const OpDescription* one : all_ops())
    known +=
        fmt::format("{}{} ({})", known.empty() ? "" : ", ", static_cast<int>(one->op), one->name);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}; must be {}", argument, static_cast<int>(op), known));
}

std::string_view op_name(Op op) { return describe(op).name; }

Op parse_op(std::string_view text) {
  for (const OpDescription* one : all_ops())
    if (text == one->name || (!one->alias.empty() && text == one->alias)) return one->op;
  std::string known;
  for (const OpDescription* one : all_ops()) known += (known.empty() ? "" : " or ") + one->name;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("op is \"{}\"; must be {}", text, known));
}

OperandList operands_of(const Problem& problem) { return describe(problem.op).operands(problem); }

double useful_flops(const Problem& problem) { return describe(problem.op).useful_flops(problem); }

double operand_bytes(const Problem& problem) {
  const OpDescription& op = describe(problem.op);
  if (op.useful_bytes != nullptr) return op.useful_bytes(problem);
  double bytes = 0;
  for (const OperandSpec& x : operands_of(problem))
    if (kind_of(x.role) == OperandKind::kTensor)
      bytes += static_cast<double>(x.batch) * static_cast<double>(x.rows) *
               static_cast<double>(x.heads * x.columns) * dtype_bytes(x.dtype);
  return bytes;
}

}  // namespace attune
