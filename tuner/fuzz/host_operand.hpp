// SPDX-License-Identifier: Apache-2.0
// Operands in host memory for tests: elements in some layout, with gaps full of NaN, and the
// factors of 8-bit elements. Used by attention_case.hpp and by tests of single kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "generator/core/problem/dtype.hpp"
#include "templates/shared/kernel_arguments.h"

namespace attune::testing {

enum class Layout {
  kContiguous,
  kHeadsFirst,
  kPadded
};  // [B,S,H,D], [B,H,S,D], rows with gaps full of NaN

struct Extents {
  int64_t batch, rows, heads, dim;
};

// Element (b, row, head, i) is at b * batch_stride + head * head_stride + row * row_stride + i. In
// a transposed operand, a line holds one column: the element is at ... + i * row_stride + row.
struct HostOperand {
  std::vector<std::byte> bytes;
  Dtype dtype = Dtype::kFp32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
  bool transposed = false;

  int64_t index(int64_t b, int64_t row, int64_t head, int64_t i) const {
    return b * batch_stride + head * head_stride +
           (transposed ? i * row_stride + row : row * row_stride + i);
  }
  double at(int64_t b, int64_t row, int64_t head,
            int64_t i) const;  // the stored value, without a factor
  void set(int64_t b, int64_t row, int64_t head, int64_t i, double value);
  OperandView view(void* data) const { return {data, batch_stride, row_stride, head_stride}; }
};

// Returns an operand full of NaN. Rows begin at multiples of 16 bytes; the gaps between rows are
// NaN too.
HostOperand make_operand(Dtype dtype, Layout layout, const Extents& extents,
                         bool transposed = false);

// The factors of one 8-bit operand; see ScaleView. If `values` is empty, every factor is 1, and
// kernels get a null pointer.
struct HostScale {
  std::vector<float> values;
  int64_t batch_stride = 0, head_stride = 0, block_stride = 0;
  int heads_per_scale = 1;
  int64_t block = 0;  // rows that share a factor; 0: all rows of a head

  int64_t index(int64_t b, int64_t row, int64_t head) const {
    return b * batch_stride + head / heads_per_scale * head_stride +
           (block > 0 ? row / block * block_stride : 0);
  }
  double at(int64_t b, int64_t row, int64_t head) const {
    return values.empty() ? 1.0
                          : static_cast<double>(values[static_cast<size_t>(index(b, row, head))]);
  }
  ScaleView view(float* data) const {
    return {values.empty() ? nullptr : data, batch_stride, head_stride, block_stride,
            heads_per_scale};
  }
};

// The unit of elements that share one factor.
enum class Grain { kNone, kTensor, kHead, kBlock };

// Returns factors for an operand, all NaN. Draws the order of the axes and the gaps from `random`.
HostScale make_scale(std::mt19937_64& random, Grain grain, const Extents& extents, int64_t block);

// Stores values / factor in the operand's 8 bits. Chooses factors so that the largest value of each
// unit becomes `largest` / u, with u drawn from [low, high); u below 1 saturates. `values` are
// dense, [batch, rows, heads, dim].
struct Fit {
  double largest;
  double low, high;
};
void quantise(std::mt19937_64& random, const Extents& extents, const std::vector<float>& values,
              const Fit& fit, HostOperand* operand, HostScale* scale);

}  // namespace attune::testing
