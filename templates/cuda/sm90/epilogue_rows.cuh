// SPDX-License-Identifier: Apache-2.0
// Ends the rows of a tile: computes the divisor of O and LSE, and finds the rows to store.
// epilogue_tma.cuh and epilogue_words.cuh store O.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/parts/sinks.cuh"  // where kSinks, else none/
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

constexpr float kLn2 = 0.6931471805599453f;

// Values of a thread's rows that the end of a tile needs.
struct RowEnds {
  float inverse[2];  // 1 / row sum; 0 for a row that saw no key
  float lse[2];      // natural log
};

// The first of a thread's two rows.
struct ThreadRows {
  int row;
  int head;
};

__device__ __forceinline__ ThreadRows thread_rows(const PrefillTile& tile, int warpgroup,
                                                  int thread) {
  return {tile.first_row + warpgroup * kHeadRows + thread_row(thread),
          tile.head + thread_head(thread)};
}

// True if the first (half 0) or the second of a thread's rows exists in O and LSE.
__device__ __forceinline__ bool has_row(const AttentionArgs& args, const PrefillTile& tile,
                                        ThreadRows place, int half) {
  return place.row + kNextRow * half < args.seqlen_q &&
         !is_idle(place.head + kNextHead * half - tile.head);
}

// Returns the RowEnds of a thread's rows. A row that saw no key, or only scores of -inf, has the
// sum 0. Any other row has a sum of at least 1, or NaN.
__device__ __forceinline__ RowEnds end_rows(const RowStats& rows) {
  RowEnds ends;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    ends.inverse[half] = rows.sum[half] == 0.f ? 0.f : 1.f / rows.sum[half];
    ends.lse[half] = (rows.max[half] + log2_approx(rows.sum[half])) * kLn2;  // log2 of 0 is -inf
  }
  return ends;
}

template <int kCount>
__device__ __forceinline__ void normalise(float (&o)[kCount], const RowEnds& ends) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= ends.inverse[i / 2 % 2];
  if (ends.inverse[0] == 0.f || ends.inverse[1] == 0.f) {  // exactly 0 even if V is not finite
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (ends.inverse[i / 2 % 2] == 0.f) o[i] = 0.f;
  }
}

__device__ __forceinline__ void store_lse(const AttentionArgs& args, const PrefillTile& tile,
                                          ThreadRows at, const RowEnds& ends) {
  if (args.lse == nullptr || threadIdx.x % 4 != 0) return;
  if (kVSlices > 1 && tile.v_column > 0) return;  // another tile stores it
  float* out = args.lse + tile.batch * args.lse_batch_stride + at.head * args.lse_head_stride;
  if (has_row(args, tile, at, 0)) out[at.row] = ends.lse[0];
  if (has_row(args, tile, at, 1))
    out[kNextHead * args.lse_head_stride + at.row + kNextRow] = ends.lse[1];
}

// Waits until the previous tile has left this warpgroup's staging memory. `thread` is the index
// within the warpgroup.
__device__ __forceinline__ void await_staging(int warpgroup, int thread) {
  if (thread == 0) tma_store_wait_read();
  named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);
}

// Adds the sinks, if there are any, to the two rows that a thread holds.
__device__ __forceinline__ void join_sinks(const ScoreArgs& scores, ThreadRows place,
                                           RowEnds* ends) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    join_sink(scores, place.head + kNextHead * half, ends->inverse[half], ends->lse[half]);
}

}  // namespace attune
