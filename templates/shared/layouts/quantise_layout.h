// SPDX-License-Identifier: Apache-2.0
// Shared by host and kernels of the quantise op: largest codes, and the dynamic shared memory of
// the CUDA kernels. See cuda/small/quantise.cu and cpu/small/quantise.cpp.
//
// | offset | bytes                            | what                                              |
// |--------|----------------------------------|---------------------------------------------------|
// | 0      | 128                              | largest magnitude of each warp, fp32              |
// | 128    | head_dim * 4 * (rows / 4, odd)   | transposed output only: codes, [head_dim][rows],  |
// |        |                                  | a row padded to an odd number of words            |
#pragma once

#include "shared/attention_enums.h"

namespace attune {

// Largest finite magnitudes of the narrow types: a block's largest element becomes this.
constexpr float largest_code_value(Dtype dtype) {
  if (dtype == Dtype::kInt8) return 127.0f;
  if (dtype == Dtype::kInt4) return 7.0f;
  if (dtype == Dtype::kE2m1) return 6.0f;
  return dtype == Dtype::kE4m3 ? 448.0f : 57344.0f;
}

// The smallest factor, and the smallest magnitude that is not taken for zero: fp32's smallest
// normal number.
constexpr float kSmallestFactor = 1.17549435e-38f;

constexpr int kQuantiseReduceBytes = 128;
constexpr int quantise_tile_words(int rows) { return rows / 4 | 1; }
constexpr int quantise_shared_bytes(int rows, int head_dim, bool transposed) {
  return kQuantiseReduceBytes + (transposed ? head_dim * 4 * quantise_tile_words(rows) : 0);
}

}  // namespace attune
