// SPDX-License-Identifier: Apache-2.0
// Makes operands and factors in host memory; see host_operand.hpp.
#include "tuner/fuzz/host_operand.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/problem/problem.hpp"

namespace attune::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void for_each_row(const Extents& x,
                  const std::function<void(int64_t b, int64_t row, int64_t head)>& visit) {
  for (int64_t b = 0; b < x.batch; ++b)
    for (int64_t row = 0; row < x.rows; ++row)
      for (int64_t head = 0; head < x.heads; ++head) visit(b, row, head);
}

// Sets the strides: each of `heads` heads has `lines` lines of `length` elements. row_stride is the
// step from one line to the next.
void set_strides(HostOperand* operand, Layout layout, int64_t lines, int64_t heads, int64_t length,
                 bool heads_outside) {
  const int64_t gap = layout == Layout::kPadded ? 16 : 0;  // elements; keeps rows 16-byte aligned
  const int64_t line = padded_row(operand->dtype, length) + gap;
  if (heads_outside) {
    operand->row_stride = line;
    operand->head_stride = (lines + (gap > 0 ? 1 : 0)) * line;
    operand->batch_stride = heads * operand->head_stride;
  } else {
    operand->head_stride = line;
    operand->row_stride = heads * line + gap;
    operand->batch_stride = (lines + (gap > 0 ? 1 : 0)) * operand->row_stride;
  }
}

// Returns the largest magnitude among the values that share each factor.
std::vector<double> largest_values(const Extents& x, const std::vector<float>& values,
                                   const HostScale& scale) {
  std::vector<double> largest(scale.values.size(), 0.0);
  size_t at = 0;
  for_each_row(x, [&](int64_t b, int64_t row, int64_t head) {
    double& unit = largest[static_cast<size_t>(scale.index(b, row, head))];
    for (int64_t i = 0; i < x.dim; ++i)
      unit = std::max(unit, static_cast<double>(std::abs(values[at++])));
  });
  return largest;
}

}  // namespace

double HostOperand::at(int64_t b, int64_t row, int64_t head, int64_t i) const {
  return load_element(dtype, bytes.data(), index(b, row, head, i));
}

void HostOperand::set(int64_t b, int64_t row, int64_t head, int64_t i, double value) {
  store_element(dtype, bytes.data(), index(b, row, head, i), static_cast<float>(value));
}

HostOperand make_operand(Dtype dtype, Layout layout, const Extents& extents, bool transposed) {
  HostOperand operand;
  operand.dtype = dtype;
  operand.transposed = transposed;
  const int64_t rows =
      std::max<int64_t>(extents.rows, 1);  // no stride is 0, even for an empty operand
  if (transposed)
    set_strides(&operand, layout, extents.dim, extents.heads, rows, layout != Layout::kHeadsFirst);
  else
    set_strides(&operand, layout, rows, extents.heads, extents.dim, layout == Layout::kHeadsFirst);
  const int64_t count = std::max<int64_t>(extents.batch * operand.batch_stride, 1);
  operand.bytes.resize(static_cast<size_t>(count * dtype_bytes(dtype)));
  for (int64_t i = 0; i < count; ++i) store_element(dtype, operand.bytes.data(), i, kNan);
  return operand;
}

HostScale make_scale(std::mt19937_64& random, Grain grain, const Extents& x, int64_t block) {
  HostScale scale;
  scale.block = block;
  if (grain == Grain::kNone) return scale;
  scale.values.assign(1, kNan);
  if (grain == Grain::kTensor) return scale;
  scale.heads_per_scale = 1 + static_cast<int>(random() % static_cast<uint64_t>(x.heads));
  while (x.heads % scale.heads_per_scale != 0) --scale.heads_per_scale;
  const int64_t heads = x.heads / scale.heads_per_scale;
  const int64_t blocks =
      grain == Grain::kBlock ? std::max<int64_t>(1, (x.rows + block - 1) / block) : 1;
  const int64_t gap = static_cast<int64_t>(random() % 3);
  if (random() % 2 == 0) {
    scale.block_stride = grain == Grain::kBlock ? 1 : 0;
    scale.head_stride = blocks + gap;
    scale.batch_stride = heads * scale.head_stride + gap;
  } else {
    scale.head_stride = 1 + gap;
    scale.block_stride = grain == Grain::kBlock ? heads * scale.head_stride : 0;
    scale.batch_stride = blocks * heads * scale.head_stride + gap;
  }
  scale.values.assign(static_cast<size_t>(std::max<int64_t>(1, x.batch * scale.batch_stride)),
                      kNan);
  return scale;
}

void quantise(std::mt19937_64& random, const Extents& x, const std::vector<float>& values,
              const Fit& fit, HostOperand* operand, HostScale* scale) {
  std::uniform_real_distribution<double> spread(fit.low, fit.high);
  if (!scale->values.empty()) {
    const std::vector<double> largest = largest_values(x, values, *scale);
    for_each_row(x, [&](int64_t b, int64_t row, int64_t head) {
      const auto unit = static_cast<size_t>(scale->index(b, row, head));
      float& factor = scale->values[unit];
      if (std::isnan(factor))
        factor = static_cast<float>(largest[unit] > 0 ? largest[unit] / fit.largest * spread(random)
                                                      : 1.0);
    });
  }
  size_t at = 0;
  for_each_row(x, [&](int64_t b, int64_t row, int64_t head) {
    const double factor = scale->at(b, row, head);
    for (int64_t i = 0; i < x.dim; ++i) operand->set(b, row, head, i, values[at++] / factor);
  });
}

}  // namespace attune::testing
