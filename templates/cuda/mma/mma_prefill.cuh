// SPDX-License-Identifier: Apache-2.0
// Computes one work tile of the mma.sync kernels: O = softmax(scale * Q K^T, masked) V and LSE for
// kBlockM rows of one head. Each warp owns kRowTiles * 16 rows from the first score to the stored
// row; shared memory only carries Q, K and V. The including kernel chooses the pipeline that fills
// shared memory: AsyncKvPipeline (kv_pipeline_async.cuh, from sm_80 on) or PlainKvPipeline
// (kv_pipeline_plain.cuh, sm_75). It also chooses the part for the element width:
// mma_values_16bit.cuh, mma_values_8bit.cuh or mma_values_tf32.cuh.
#pragma once

#include "cuda/mma/mma_dropout.cuh"     // where kDropout, else none/
#include "cuda/mma/mma_mask_stage.cuh"  // where kMaskProgram, else none/
#include "cuda/mma/mma_max_logits.cuh"  // where kMaxLogits, else none/
#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/mma_score_stage.cuh"  // where kScored, else none/
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/sinks.cuh"  // where kSinks, else none/
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/parts/v_slice.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

constexpr int kRingOffset = prefill_sm80_ring_offset(kLayout);
constexpr int kStateOffset = prefill_sm80_state_offset(kLayout);
static_assert(kBlockM == kWarps * kWarpRows && kRowTiles >= 1,
              "block_m is a multiple of 16 rows for each warp");
static_assert(kBlockN % 16 == 0, "block_n is a multiple of 16, the depth of one product with V");
static_assert(kHeadDimQk % 8 == 0 && kHeadDimV % 8 == 0, "head dims are multiples of 8");

__device__ __forceinline__ void mask_scores(const AttentionArgs& args, Scores& scores,
                                            const Tile& tile, int block) {
  const int column = first_column(block * kBlockN);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      KeyInterval<int> visible = visible_keys(args, row_of(tile, m, half));
      visible.first -= column;
      visible.last -= column;
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
        float(&fragment)[4] = scores[m][n];
        const int first = column_of(n);
        if (!visible.contains(first)) fragment[2 * half] = hidden_score();
        if (!visible.contains(first + 1)) fragment[2 * half + 1] = hidden_score();
      }
    }
  }
}

__device__ __forceinline__ void store_output(const KernelParts& parts, const Tile& tile,
                                             const Output& output, const Softmax& softmax,
                                             const Factors& factors, const MaxLogits& logits) {
  const AttentionArgs& args = parts.base;
  const OperandView& o = args.o;
  auto* const base = output_rows(o, tile);
  logits.join(parts, tile);
  const int thread_in_quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Softmax::Row result = softmax.finish(m, half);
      result.normalizer *= dropout_scale(parts.dropout);
      join_sink(parts.scores, tile.head, result.normalizer, result.lse);
      const int row = row_of(tile, m, half);
      const bool exists = row < args.seqlen_q;
      store_output_row(output[m], half, factors.output(parts, tile, result.normalizer),
                       exists ? base + row * o.row_stride : nullptr, thread_in_quad);
      if (first_v_column(blockIdx.x) > 0) continue;
      if (args.lse != nullptr && exists && thread_in_quad == 0)
        args.lse[tile.batch * args.lse_batch_stride + tile.head * args.lse_head_stride + row] =
            result.lse;
    }
  }
}

// Returns the blocks of columns that the calling warp visits. If no limit moves with the row, the
// warp visits all blocks that the thread block visits.
__device__ __forceinline__ BlockRange blocks_of_warp(const AttentionArgs& args, const Tile& tile,
                                                     const BlockRange& of_block) {
  if constexpr (!kHasLeftLimit && !kHasRightLimit) return of_block;
  const int first_row = tile.row_block * kBlockM + static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  return visible_blocks<kBlockN>(args, first_row, min(first_row + kWarpRows, args.seqlen_q));
}

// Computes one tile. While a step waits for its data, the thread computes everything else that the
// step needs. If the pipeline has barriers between the products, a warp also computes and masks a
// block that is hidden from it, so that all warps reach the same barriers.
template <class Pipeline>
__device__ __forceinline__ void attend(const KernelParts& parts, const Tile& tile,
                                       unsigned shared) {
  const AttentionArgs& args = parts.base;
  const int first_row = tile.row_block * kBlockM;
  const BlockList list(parts.map, tile.batch, tile.head, tile.row_block);
  const BlockRange visible =
      visible_blocks<kBlockN>(args, first_row, min(first_row + kBlockM, args.seqlen_q));
  const BlockRange all = list & visible;
  const TileState state(shared + kStateOffset);
  state.park(tile, blocks_of_warp(args, tile, all));
  Pipeline pipeline(args, state, shared + kRingOffset, all.begin, list);
  QueryFragments query(shared);
  Pipeline::load_q(args, tile, shared);
  if constexpr (kQPlace == kQRegistersThroughRing) {
    Pipeline::template wait_q<false>();
    query.keep();
    __syncthreads();
  }
  pipeline.start(tile, pipeline.places(all.end));
  if constexpr (kQPlace == kQRegisters) {
    Pipeline::template wait_q<true>();
    query.keep();
  }
  __syncthreads();                                  // the state is readable
  const FragmentOffsets held = fragment_offsets();  // without kHoldOffsets not used
  Output output = {};
  const Factors factors(parts, tile);
  const ScoreStage stage(parts, tile);
  Softmax softmax = factors.softmax(parts);
  PrefillDropout dropout;
  MaxLogits logits;
  for (int block = all.end - 1; block >= all.begin; --block) {
    pipeline.to_place(&block);
    pipeline.to_block(&block);
    const BlockRange range = kHasLeftLimit || kHasRightLimit ? state.range() : all;
    const bool shown = range.contains(block);
    const bool masked = range.needs_mask(block);
    const FragmentOffsets offsets = kHoldOffsets ? held : fragment_offsets();
    const Factors::Step step = factors.step(parts, state, block);
    dropout.make(parts, state, block);
    const unsigned k_tile = pipeline.acquire_k(block);
    if (Pipeline::kPairs &&
        !shown) {  // this warp skips a hidden block: no barrier before the next block
      pipeline.prefetch(block);
      pipeline.acquire_v(block);
      continue;
    }
    Scores scores;
    multiply_qk(scores, query, k_tile, offsets);
    pipeline.prefetch(block);  // its instructions overlap the last products
    stage.apply(factors, step, block, scores);
    factors.scale(scores, step);
    if (pipeline.is_partial()) hide_scores(parts, state, block, scores);
    if (masked) mask_scores(args, scores, state.tile(), block);
    softmax.raise_row_max(logits.seen(scores), output);
    multiply_pv(output, scores, softmax, dropout, pipeline.acquire_v(block), offsets, step);
  }
  store_output(parts, state.tile(), output, softmax, factors, logits);
}

// Computes the tile of one thread block.
template <class Pipeline>
__device__ __forceinline__ void attend_tile(const KernelParts& parts, unsigned shared) {
  const AttentionArgs& args = parts.base;
  const TileScheduler<kTileOrder, kBlockM> tile_at(args);
  attend<Pipeline>(parts, tile_at(blockIdx.x), shared);
}

}  // namespace attune
