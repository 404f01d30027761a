// SPDX-License-Identifier: Apache-2.0
// Dropout in the kernel of dQ, by rows (dropout.cuh).
#pragma once

#include "cuda/backward_sm90/dropout.cuh"
#include "cuda/backward_sm90/layout.cuh"

namespace attune {

// Dropout of a warpgroup whose 64 rows stay.
class RowsDropout : public GradientDropout<kBlockN, false> {
 public:
  using GradientDropout::GradientDropout;

  // Turns delta, which this kernel has made itself, into delta'.
  __device__ __forceinline__ void take_part(float (&delta)[2]) const {
    for (float& of_row : delta) of_row *= kept_part(args_);
  }

  // Begins a tile. `first_row`: first row of the warpgroup.
  __device__ __forceinline__ void begin(const AttentionArgs& args, int batch, int head,
                                        int first_row) {
    source_ = Squares::staying(DropoutSource(args_, dropout_head(args, batch, head)),
                               static_cast<unsigned>(first_row + first_accumulator_row()) / 16);
  }

  // Sets dropped elements of a step's rounded P to zero.
  __device__ __forceinline__ void keep(unsigned (&p)[kBlockN / 4]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) {
      if (!squares_.keeps(i / 2, i % 2, 0)) p[i] &= 0xFFFF0000u;
      if (!squares_.keeps(i / 2, i % 2, 1)) p[i] &= 0x0000FFFFu;
    }
  }
};

}  // namespace attune
