// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels that read or write 8-bit operands: the factors of the elements.
#pragma once

namespace attune {

// Factors that 8-bit elements are multiplied by to give their values. The factor of an element in
// row r of head h is at
//   batch * batch_stride + h / heads_per_scale * head_stride + r / kScaleBlock * block_stride
// where kScaleBlock is the compiled-in number of rows that share one (0: all rows, block_stride is
// not used). Zero strides repeat one factor: a tensor with a single one has all strides 0.
struct ScaleView {
  float* data;  // null: every factor is 1
  long long batch_stride;
  long long head_stride;
  long long block_stride;
  int heads_per_scale;  // consecutive heads that share a factor; divides the number of heads
};

struct ScaleArgs {
  ScaleView q_scale;
  ScaleView k_scale;
  ScaleView v_scale;
  ScaleView o_scale;  // written by the quantise op; with max_logits: the largest logits
};

}  // namespace attune
