// SPDX-License-Identifier: Apache-2.0
// Stores rows of append_kv in caches of 4 bits: codes, and the factors of their groups of columns
// (shared/nibble_rows.h). Each lane of a row has eight columns per step, so two or four lanes share
// a factor.
#pragma once

#include "cuda/ptx/round_8bit.cuh"
#include "shared/append_rows.h"
#include "shared/layouts/quantise_layout.h"
#include "shared/nibble_rows.h"

namespace attune {

constexpr int kLanesOfGroup = kGroupColumns / 8;
static_assert(kLanes % kLanesOfGroup == 0, "a group of columns lies in one step");

struct NoGroups {};

// The factors of a row in the cache.
struct GroupRow {
  unsigned char* row;
};
__device__ __forceinline__ GroupRow group_row(const OperandView& view, const AppendRow& row,
                                              unsigned head) {
  return {static_cast<unsigned char*>(view.data) + row.page * view.batch_stride +
          row.key * view.row_stride + head * view.head_stride};
}
__device__ __forceinline__ GroupRow groups_of_k(const GroupFactorArgs& groups, const AppendRow& row,
                                                unsigned head) {
  return group_row(groups.k, row, head);
}
__device__ __forceinline__ GroupRow groups_of_v(const GroupFactorArgs& groups, const AppendRow& row,
                                                unsigned head) {
  return group_row(groups.v, row, head);
}

// Stores a lane's eight columns from `column` on, and the factor of its group. All lanes of the row
// must call it. `unit`: the factor of the head. A NaN counts as 0.
template <int kHeadDim>
__device__ __forceinline__ void pack_eight(const float (&values)[8], int column,
                                           unsigned lanes_of_row, bool is_there, float unit,
                                           unsigned char* codes, unsigned char* factors) {
  const bool has = is_there && column < kHeadDim;
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float size = has ? fabsf(values[i]) : 0.0f;
    largest = size > largest ? size : largest;
  }
#pragma unroll
  for (int lanes = kLanesOfGroup / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(lanes_of_row, largest, lanes);
    largest = other > largest ? other : largest;
  }
  if (!has) return;
  const float share = __fdiv_rn(largest, largest_code_value(kDtypeKv) * unit);
  const auto factor = static_cast<unsigned char>(
      pack_fp8<Dtype::kE4m3>(share >= 0.0f ? share : 0.0f, 0.0f, 0.0f, 0.0f));  // 0 / 0 is NaN
  const float divisor = group_factor(factor) * unit;
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    word |= (divisor == 0.0f ? 0u : nibble_code<kDtypeKv>(__fdiv_rn(values[i], divisor))) << 4 * i;
  *reinterpret_cast<unsigned*>(codes + column / 2) = word;
  if (column % kGroupColumns == 0) factors[column / kGroupColumns] = factor;
}

}  // namespace attune
