// SPDX-License-Identifier: Apache-2.0
// One work tile of the mma.sync kernels: O = softmax(scale * Q K^T, masked) V and LSE for kBlockM rows of one head. Each warp
// owns kRowTiles * 16 rows from the first score to the stored row; shared memory only carries Q, K and V. The pipeline that fills it
// is the including kernel's: KvPipeline of kv_pipeline_async.cuh (sm_80) or kv_pipeline_plain.cuh (sm_75).
#pragma once

#include "cuda/attention/epilogue.cuh"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/mma_products.cuh"
#include "cuda/attention/online_softmax.cuh"
#include "cuda/attention/tile_scheduler.cuh"

namespace attune {

constexpr int kWarpRows = 16 * kRowTiles;
static_assert(kBlockM == kWarps * kWarpRows && kRowTiles >= 1, "block_m is a multiple of 16 rows for each warp");
static_assert(kBlockN % 16 == 0, "block_n is a multiple of 16, the depth of one product with V");
static_assert(kHeadDimQk % 8 == 0 && kHeadDimV % 8 == 0, "head dims are multiples of 8");

// The rows of one warp.
struct WarpRows {
  int begin;      // first row
  int end;        // one past the last that exists
  int lane;
  // Row of element pair `half` (0, 1) of tile m.
  __device__ __forceinline__ int row(int m, int half) const { return begin + m * 16 + half * 8 + lane / 4; }
};

__device__ __forceinline__ void hide_invisible(const AttentionArgs& args, Scores& scores, const WarpRows& rows, int block) {
  const int column = block * kBlockN + rows.lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      VisibleColumns visible = visible_columns(args, rows.row(m, half));
      visible.first -= column;
      visible.last -= column;
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        float(&fragment)[4] = scores[m][n];
        if (!visible.contains(n * 8)) fragment[2 * half] = hidden_score();
        if (!visible.contains(n * 8 + 1)) fragment[2 * half + 1] = hidden_score();
      }
    }
  }
}

__device__ __forceinline__ void store_output(const AttentionArgs& args, const Tile& tile, const Output& output,
                                             const OnlineSoftmax<kRowTiles>& softmax, const WarpRows& rows) {
  const OperandView& o = args.o;
  unsigned short* const base = static_cast<unsigned short*>(o.data) + tile.batch * o.batch_stride + tile.head * o.head_stride;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const typename OnlineSoftmax<kRowTiles>::Row result = softmax.finish(m, half);
      const int row = rows.row(m, half);
      const bool exists = row < args.seqlen_q;
      store_row<kDtypeO>(output[m], 2 * half, result.normalizer, exists ? base + row * o.row_stride : nullptr, rows.lane % 4);
      if (args.lse != nullptr && exists && rows.lane % 4 == 0)
        args.lse[tile.batch * args.lse_batch_stride + tile.head * args.lse_head_stride + row] = result.lse;
    }
  }
}

template <class Pipeline>
__device__ __forceinline__ void attend(const AttentionArgs& args, const Tile& tile, unsigned shared) {
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int first_row = tile.row_block * kBlockM;
  WarpRows rows{first_row + warp * kWarpRows, 0, static_cast<int>(threadIdx.x) % 32};
  rows.end = min(rows.begin + kWarpRows, args.seqlen_q);
  const BlockRange all = visible_blocks<kBlockN>(args, first_row, min(first_row + kBlockM, args.seqlen_q));
  // Without limits that move with the row, every warp visits what the block visits.
  const BlockRange mine = kHasLeftLimit || kHasRightLimit ? visible_blocks<kBlockN>(args, rows.begin, rows.end) : all;

  Pipeline pipeline(args, tile, shared + prefill_sm80_ring_offset(kLayout), all);
  QueryFragments query(shared + warp * kWarpRows * SharedTile<kHeadDimQk>::kRowBytes, rows.lane);
  Pipeline::load_q(args, tile, shared);
  if constexpr (kQPlace == kQRegistersThroughRing) {
    Pipeline::template wait_q<false>();
    query.keep();
    __syncthreads();
  }
  pipeline.start();
  if constexpr (kQPlace == kQRegisters) {
    Pipeline::template wait_q<true>();
    query.keep();
  }

  Output output = {};
  OnlineSoftmax<kRowTiles> softmax(args.softmax_scale_log2);
  for (int block = all.end - 1; block >= all.begin; --block) {
    Scores scores;
    const bool visible = mine.contains(block);
    const unsigned k_tile = pipeline.acquire_k(block);
    if (visible) {
      multiply_qk(scores, query, k_tile, rows.lane);
      if (mine.needs_mask(block)) hide_invisible(args, scores, rows, block);
      softmax.raise_maximum(scores, output);
    }
    const unsigned v_tile = pipeline.acquire_v(block);
    if (visible) multiply_pv(output, scores, softmax, v_tile, rows.lane);
  }
  store_output(args, tile, output, softmax, rows);
}

// The tiles of one thread block: its own, or as a persistent block every gridDim.x-th.
template <class Pipeline>
__device__ __forceinline__ void attend_tiles(const AttentionArgs& args, unsigned shared) {
  const TileScheduler<kTileOrder, kBlockM> tile_at(args);
  if constexpr (kPersistent) {
    for (int tile = blockIdx.x; tile < args.num_tiles; tile += gridDim.x) {
      attend<Pipeline>(args, tile_at(tile), shared);
      __syncthreads();
    }
  } else {
    attend<Pipeline>(args, tile_at(blockIdx.x), shared);
  }
}

}  // namespace attune
