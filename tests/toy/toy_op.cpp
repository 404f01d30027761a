// SPDX-License-Identifier: Apache-2.0
// The description of the toy op.
#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "tests/toy/toy.hpp"

namespace attune::toy {
namespace {

void check(const Problem& p) {
  if (p.dtype_kv != p.dtype_q || p.dtype_o != p.dtype_q || is_8_bit(p))
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype_o is {}; op toy takes one dtype of 16 or 32 bits",
                            dtype_name(p.dtype_o)));
  if (p.seqlen_kv != p.seqlen_q || p.num_heads_kv != p.num_heads_q || p.head_dim_v != p.head_dim_qk)
    throw Error(ErrorCode::kInvalidArgument, "op toy takes operands of one shape");
}

OperandSpec like_x(const Problem& p, Role role, const char* name, bool written) {
  OperandSpec operand{role, name, p.dtype_q, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk};
  operand.written = written;
  return operand;
}

OperandList operands(const Problem& p) {
  return {like_x(p, Role::kQ, "x", false), like_x(p, Role::kK, "y", false),
          like_x(p, Role::kO, "sum", true), like_x(p, Role::kV, "difference", true)};
}

double no_flops(const Problem&) { return 0; }

[[maybe_unused]] const bool registered = (add_op(toy_op()), true);

}  // namespace

const OpDescription& toy_op() {
  static const OpDescription op{kToy, "toy", "", check, operands, no_flops};
  return op;
}

}  // namespace attune::toy
