// SPDX-License-Identifier: Apache-2.0
// Applies dropout in a consumer of prefill_sm90. Dropped probabilities become zero when P is
// rounded, and O is multiplied by 256 / threshold at the end. Row sums and LSE include all
// probabilities.
#pragma once

#include "cuda/parts/dropout_squares.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/tile_rows.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

class PrefillDropout {
 public:
  // `first_row` is the warpgroup's first row.
  __device__ __forceinline__ void begin(const KernelParts& parts, const PrefillTile& tile,
                                        int first_row) {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const int head = tile.head + thread_head(thread);
    const DropoutSource of_head(parts.dropout, dropout_head(parts.base, tile.batch, head));
    // A warp's 16 rows belong to one head.
    source_ = Squares::staying(of_head, static_cast<unsigned>(first_row + thread_row(thread)) / 16);
    own_ = made_here(Squares::own());  // not computed again in each step
  }

  // Makes the squares of a step, whose first key is a multiple of 16. Call it among exponentials,
  // which leave the other units idle.
  __device__ __forceinline__ void make(int first_key) {
    squares_.make(source_, static_cast<unsigned>(first_key) / 16, own_);
  }

  template <int kCount>
  __device__ __forceinline__ void keep(unsigned (&p)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) p[i] = squares_.keep(p[i], i / 2, i % 2);
  }

 private:
  using Squares = DropoutSquares<kBlockN / 16, false>;

  DropoutSource source_;
  unsigned own_ = 0;
  Squares squares_;
};

// Called by each thread of the kernel before anything else. The prior grid may make the seed.
__device__ __forceinline__ void begin_dropout(const DropoutArgs& args) {
  wait_for_prior_grid();
  leave_dropout_state(args);
}

__device__ __forceinline__ void scale_kept(const KernelParts& parts, RowEnds* ends) {
  for (float& inverse : ends->inverse) inverse *= parts.dropout.scale;
}

}  // namespace attune
