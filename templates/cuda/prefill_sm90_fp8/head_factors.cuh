// SPDX-License-Identifier: Apache-2.0
// The factors of one head of an 8-bit operand (shared/kernel_arguments.h), and the largest factor
// of the keys that a query row sees. Used by prefill_sm90_fp8.
#pragma once

#include "cuda/parts/kernel_parts.cuh"

#include "cuda/parts/mask.cuh"

namespace attune {

// True if the factor is finite and above zero.
__device__ __forceinline__ bool ordinary(float factor) {
  return factor > 0.f && factor < __int_as_float(0x7f800000);
}

// The factors of one head. kScaleBlock rows share a factor; if it is 0, all rows share one.
template <int kScaleBlock>
class HeadFactors {
 public:
  static constexpr int kRows = kScaleBlock > 0 ? kScaleBlock : 1;

  __device__ __forceinline__ HeadFactors(const ScaleView& view, int batch, int head)
      : data_(view.data), step_(view.block_stride) {
    if (data_) data_ += batch * view.batch_stride + head / view.heads_per_scale * view.head_stride;
  }

  __device__ __forceinline__ float of_row(int row) const {
    if (!data_) return 1.f;
    if constexpr (kScaleBlock == 0) return __ldg(data_);
    return __ldg(data_ + row / kRows * step_);
  }

  // Returns the largest finite factor of rows [begin, end), over every `stride`-th block of rows
  // from the `first` on. Returns 0 if there is none.
  __device__ __forceinline__ float largest(int begin, int end, int first = 0,
                                           int stride = 1) const {
    float largest = 0.f;
    for (int block = begin / kRows + first; block * kRows < end; block += stride) {
      const float factor = of_row(block * kRows);
      if (ordinary(factor)) largest = fmaxf(largest, factor);
    }
    return largest;
  }

 private:
  const float* data_;
  long long step_;
};

// The keys [begin, end) that each of `rows` query rows sees; none if end <= begin.
struct CommonKeys {
  int begin;
  int end;
};

__device__ __forceinline__ CommonKeys common_keys(const AttentionArgs& args, int first_row,
                                                  int rows) {
  return {visible_keys(args, first_row + rows - 1).first, visible_keys(args, first_row).last + 1};
}

// Returns the largest finite factor of the keys that `row` sees. `largest_common` is the largest
// factor of `common`, the keys that all rows of its group see.
template <int kScaleBlock>
__device__ __forceinline__ float largest_seen(const HeadFactors<kScaleBlock>& factors,
                                              const AttentionArgs& args, int row,
                                              const CommonKeys& common, float largest_common) {
  const KeyInterval<int> seen = visible_keys(args, row);
  if (seen.last < seen.first) return 0.f;
  if (common.end <= common.begin) return factors.largest(seen.first, seen.last + 1);
  return fmaxf(largest_common, fmaxf(factors.largest(seen.first, common.begin),
                                     factors.largest(common.end, seen.last + 1)));
}

}  // namespace attune
