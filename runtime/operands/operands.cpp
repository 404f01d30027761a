// SPDX-License-Identifier: Apache-2.0
// The default layout of operands.
#include "runtime/operands/operands.hpp"

namespace attune {

OperandView contiguous_view(const OperandSpec& x) {
  const int64_t line = padded_row(x.dtype, x.line());
  if (x.transposed) return {nullptr, x.heads * x.columns * line, line, x.columns * line};
  return {nullptr, x.rows * x.heads * line, x.heads * line, line};
}

Operands contiguous_operands(const Problem& problem, void* q, void* k, void* v, void* o,
                             float* lse) {
  Operands operands{};
  for (const OperandSpec& operand : operands_of(problem))
    if (kind_of(operand.role) == OperandKind::kTensor)
      operands.*tensor_of(operand.role) = contiguous_view(operand);
  operands.q.data = q;
  operands.k.data = k;
  operands.v.data = v;
  operands.o.data = o;
  operands.lse = lse;
  return operands;
}

}  // namespace attune
