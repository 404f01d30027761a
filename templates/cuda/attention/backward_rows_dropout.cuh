// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernel of dQ of backward_sm90. With delta' = delta / scale, which stands in the workspace, dS = scale P (keep dP -
// delta'); P and delta' are made for factors `keep` of 0 and 2, as half and twice what they are, and dQ is multiplied by `scale` at
// its end.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/dropout_of_rows.cuh"
#include "cuda/attention/scale_kept.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

class RowsDropout {
 public:
  __device__ __forceinline__ explicit RowsDropout(const DropoutArgs& args)
      : args_(args), source_(args) {}

  // Delta that this kernel made becomes that of the workspace.
  __device__ __forceinline__ void take_part(float (&delta)[2]) const {
    if constexpr (!kFoldSums) return;
    for (float& of_row : delta) of_row *= kept_part(args_);
  }

  __device__ __forceinline__ void begin(const AttentionArgs& args, int batch, int head,
                                        int first_row, float (&l2)[2], float (&delta)[2]) {
    head_ = dropout_head(args, batch, head);
    first_row_ = first_row;
    for (float& of_row : l2) of_row += 1.f;
    for (float& of_row : delta) of_row *= 2.f;
  }

  __device__ __forceinline__ void make(int block) {
    const unsigned row = static_cast<unsigned>(first_row_ + first_accumulator_row());
    const unsigned cell = static_cast<unsigned>(block) * (kBlockN / 16);
    signs_.make(source_, {{head_, head_}, {row, row + 8}}, cell);
  }

  // dS of a step.
  __device__ __forceinline__ void differentiate(const float (&p)[kBlockN / 2],
                                                const float (&dp)[kBlockN / 2],
                                                const float (&delta)[2],
                                                unsigned (&ds)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {
      float pair[2];
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        const float kept = dp[2 * i + key] * signs_.twice_kept(i / 2, i % 2, key);
        pair[key] = p[2 * i + key] * (kept - delta[i % 2]);
      }
      ds[i] = pack<kDtypeQ>(pair[0], pair[1]);
    }
  }

 private:
  const DropoutArgs& args_;
  DropoutSource source_;
  unsigned head_ = 0;
  int first_row_ = 0;  // of the warpgroup
  DropoutOfRows<kBlockN / 16> signs_;
};

}  // namespace attune
