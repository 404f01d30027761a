// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernel of dQ of backward_sm90. The workspace holds delta' = delta / scale. Then
// dS = scale P (keep dP - delta'). The kernel multiplies complete dQ by `scale`.
#pragma once

#include "cuda/backward_sm90/backward_layout.cuh"
#include "cuda/backward_sm90/scale_kept.cuh"
#include "cuda/parts/dropout_squares.cuh"
#include "cuda/ptx/convert.cuh"

namespace attune {

class RowsDropout {
 public:
  __device__ __forceinline__ explicit RowsDropout(const DropoutArgs& args) : args_(args) {}

  // Turns delta into delta' if this kernel made delta itself.
  __device__ __forceinline__ void take_part(float (&delta)[2]) const {
    if constexpr (!kFoldSums) return;
    for (float& of_row : delta) of_row *= kept_part(args_);
  }

  // Begins a tile. `first_row`: first row of the warpgroup.
  __device__ __forceinline__ void begin(const AttentionArgs& args, int batch, int head,
                                        int first_row) {
    source_ = Squares::staying(DropoutSource(args_, dropout_head(args, batch, head)),
                               static_cast<unsigned>(first_row + first_accumulator_row()) / 16);
  }

  // Finds the elements of a block that dropout keeps. This work overlaps with the exponentials,
  // which leave the other units idle.
  __device__ __forceinline__ void make(int block) {
    squares_.make(source_, static_cast<unsigned>(block) * (kBlockN / 16));
  }

  // Sets dropped elements of a step's rounded P to zero.
  __device__ __forceinline__ void keep(unsigned (&p)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {
      if (!squares_.keeps(i / 2, i % 2, 0)) p[i] &= 0xFFFF0000u;
      if (!squares_.keeps(i / 2, i % 2, 1)) p[i] &= 0x0000FFFFu;
    }
  }

  // Makes dS of a step.
  __device__ __forceinline__ void differentiate(const float (&p)[kBlockN / 2],
                                                const float (&dp)[kBlockN / 2],
                                                const float (&delta)[2],
                                                unsigned (&ds)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {
      float pair[2];
#pragma unroll
      for (int key = 0; key < 2; ++key) {
        const float kept = squares_.keeps(i / 2, i % 2, key) ? dp[2 * i + key] : 0.f;
        pair[key] = p[2 * i + key] * (kept - delta[i % 2]);
      }
      ds[i] = pack<kDtypeQ>(pair[0], pair[1]);
    }
  }

 private:
  using Squares = DropoutSquares<kBlockN / 16, false>;

  const DropoutArgs& args_;
  DropoutSource source_;
  Squares squares_;
};

}  // namespace attune
