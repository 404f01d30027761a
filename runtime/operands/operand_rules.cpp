// SPDX-License-Identifier: Apache-2.0
// The fast form of the checks in operand_check.cpp; a test compares both forms. Strides are
// compared as unsigned numbers, so that a negative stride is larger than any valid stride.
#include "runtime/operands/operand_rules.hpp"

#include <utility>

namespace attune {
namespace {

bool is_misaligned(const void* address, uint64_t alignment) {
  return (reinterpret_cast<uintptr_t>(address) & (alignment - 1)) != 0;
}

std::array<uint64_t, 3> strides_of(const OperandView& view) {
  return {static_cast<uint64_t>(view.head_stride), static_cast<uint64_t>(view.row_stride),
          static_cast<uint64_t>(view.batch_stride)};
}

struct Step {
  uint64_t stride, more;
};

// Sorts two steps. If the strides are equal, the dimension with fewer steps comes first. A
// dimension of which a call may have fewer steps (rows_at_most) has `more` 0.
void order(Step& a, Step& b) {
  if (b.stride < a.stride || (b.stride == a.stride && b.more < a.more)) std::swap(a, b);
}

}  // namespace

// Returns limits with which no offset in bytes overflows: 16 bytes per element is more than any
// type has.
OperandRules::Dimension OperandRules::dimension(int64_t extent, int64_t element_bytes) {
  if (extent <= 1) return {};
  return {~uint64_t{0}, static_cast<uint64_t>(extent - 1),
          static_cast<uint64_t>(INT64_MAX / 16 / extent), (kTensorMapReach - 1) / element_bytes};
}

OperandRules::OperandRules(const OperandList& list) : list_(list) {
  for (const OperandSpec& operand : list) {
    if (operand.written && !operand.empty()) writes_nothing_ = false;
    switch (kind_of(operand.role)) {
      case OperandKind::kTensor:
        add_tensor(operand);
        break;
      case OperandKind::kRowSums:
        add_row_sums(operand);
        break;
      case OperandKind::kFactors:
        add_factors(operand);
        break;
    }
  }
}

void OperandRules::add_tensor(const OperandSpec& x) {
  const int64_t bytes = dtype_bytes(x.dtype);
  const auto line = static_cast<uint64_t>(x.line());
  Tensor& added = tensors_[num_tensors_++];
  added = {tensor_of(x.role),
           x.empty(),
           false,
           static_cast<uint64_t>(x.alignment),
           contiguous_view(x),
           {{dimension(x.heads, bytes), dimension(x.lines(), bytes), dimension(x.batch, bytes)},
            line,
            line,
            static_cast<uint64_t>(x.alignment / bytes - 1),
            !x.written}};
  if (x.rows_at_most) added.layout.dimensions[1].more = 0;  // heads may be closer together
  added.has_usual = added.layout.allows(strides_of(added.usual));
}

void OperandRules::add_row_sums(const OperandSpec& x) {
  row_sums_[num_row_sums_++] = {x.role,
                                !x.optional && !x.empty(),
                                {{dimension(x.heads, 4), dimension(x.batch, 4), {}},
                                 static_cast<uint64_t>(x.least_rows()),
                                 1,
                                 0,
                                 false}};
}

void OperandRules::add_factors(const OperandSpec& x) {
  for (size_t i = 0; i < factors_.size(); ++i)
    if (kFactorRoles[i].role == x.role)
      factors_[i] = {x.has_factors(),
                     !x.optional,
                     x.written,
                     static_cast<int>(x.heads),
                     {{dimension(x.batch, 4), dimension(x.heads, 4), dimension(x.blocks(), 4)},
                      1,
                      1,
                      0,
                      false}};
}

// True if each stride is at least as long as the elements that all smaller strides span.
bool OperandRules::Strided::allows(const Strides& strides) const noexcept {
  Step steps[3];
  bool wrong = false;
  for (size_t i = 0; i < 3; ++i) {
    const Dimension& d = dimensions[i];
    const uint64_t stride = strides[i] & d.used;
    wrong |= stride > d.most || (stride & part) != 0;
    wrong |= stride < (least & d.used) && (stride != 0 || !may_repeat);
    steps[i] = {stride, d.more};
  }
  order(steps[0], steps[1]), order(steps[1], steps[2]), order(steps[0], steps[1]);
  uint64_t span = line;
  for (const Step& step : steps) {
    wrong |= step.stride != 0 && step.stride < span;
    span += step.stride * step.more;
  }
  return !wrong;
}

bool OperandRules::Tensor::allows(const OperandView& given) const noexcept {
  const bool is_usual =
      ((given.head_stride ^ usual.head_stride) | (given.row_stride ^ usual.row_stride) |
       (given.batch_stride ^ usual.batch_stride)) == 0;
  return (is_usual && has_usual) || layout.allows(strides_of(given));
}

bool OperandRules::Factors::allows(const ScaleView& view) const noexcept {
  if (!view.data) return !required;
  if (!given || is_misaligned(view.data, sizeof(float))) return false;
  const int64_t strides[3] = {view.batch_stride, view.head_stride, view.block_stride};
  for (size_t i = 0; i < 3; ++i) {
    const Dimension& d = layout.dimensions[i];
    if (strides[i] < 0 || (d.used & static_cast<uint64_t>(strides[i])) > d.most) return false;
  }
  if (written &&
      !layout.allows({static_cast<uint64_t>(strides[0]), static_cast<uint64_t>(strides[1]),
                      static_cast<uint64_t>(strides[2])}))
    return false;
  if (view.heads_per_scale == 1) return true;
  return !written && view.heads_per_scale > 1 && heads % view.heads_per_scale == 0;
}

bool OperandRules::RowSums::allows(const RowSumsView& view) const noexcept {
  if (!view.data) return !required;
  if (is_misaligned(view.data, sizeof(float))) return false;
  if (view.batch_stride == 0 && view.head_stride == 0) return true;  // contiguous
  return layout.allows(
      {static_cast<uint64_t>(view.head_stride), static_cast<uint64_t>(view.batch_stride), 0});
}

bool OperandRules::allow(const Operands& operands) const noexcept {
  if (list_.empty()) return false;
  for (size_t i = 0; i < num_tensors_; ++i) {
    const Tensor& tensor = tensors_[i];
    const OperandView& view = operands.*tensor.view;
    if (tensor.empty) continue;
    if (!view.data || is_misaligned(view.data, tensor.alignment)) return false;
    if (!tensor.allows(view)) return false;
  }
  for (size_t i = 0; i < num_row_sums_; ++i)
    if (!row_sums_[i].allows(row_sums_of(operands, row_sums_[i].role))) return false;
  for (size_t i = 0; i < factors_.size(); ++i)
    if (!factors_[i].allows(operands.*factors_of(kFactorRoles[i].role))) return false;
  return true;
}

bool OperandRules::suit_tensor_maps(const Operands& operands) const noexcept {
  for (size_t i = 0; i < num_tensors_; ++i) {
    if (tensors_[i].empty) continue;
    const OperandView& view = operands.*tensors_[i].view;
    const int64_t strides[3] = {view.head_stride, view.row_stride, view.batch_stride};
    for (size_t k = 0; k < 3; ++k) {
      const Dimension& d = tensors_[i].layout.dimensions[k];
      if (d.used != 0 && (strides[k] == 0 || strides[k] > d.most_maps)) return false;
    }
  }
  return true;
}

// The default layout of operands (operands.hpp).

OperandView contiguous_view(const OperandSpec& x) {
  const int64_t line = x.by_head ? x.line() : padded_row(x.dtype, x.line());
  if (x.by_head) return {nullptr, x.rows * x.heads * line, line, x.rows * line};
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
