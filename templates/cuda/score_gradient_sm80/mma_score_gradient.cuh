// SPDX-License-Identifier: Apache-2.0
// attune_kernel of score_gradient_sm80: tiles of rows of Q and dout stay in shared memory, and K
// and V stream past them. kScoreGradient selects the destination of dz, the gradient of the scores.
// The steps are the same as for dQ in mma_gradients.cuh, without the last product.
#pragma once

#include "cuda/mma/mma_gradient_products.cuh"
#include "cuda/mma/mma_gradient_stages.cuh"
#include "cuda/mma/mma_gradient_stream.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/ptx/special_functions.cuh"
#include "cuda/score_gradient_sm80/score_gradient_lines.cuh"
#include "shared/layouts/score_gradient_layout.h"

namespace attune {

class ScoreGradientTile {
  using Side = GradientSide<false, true>;
  using Stream = GradientStream<false, true>;
  static constexpr BackwardSm80Layout kLayout = Side::kLayout;
  static constexpr int kM = kLayout.row_tiles;
  static constexpr int kN = kBlockN / 8;
  static constexpr bool kWritesDscores = writes_dscores(kScoreGradient, kRepeats);
  static constexpr bool kSumsBatch = kWritesDscores && (kRepeats & kRepeatsBatch) != 0;
  static constexpr bool kSumsHeads = kWritesDscores && (kRepeats & kRepeatsHeads) != 0;
  using Scores = float[kM][kN][4];  // (rows of the warp, kBlockN)

 public:
  __device__ __forceinline__ ScoreGradientTile(const GradientParts& parts, unsigned shared,
                                               float* dz_tile)
      : parts_(parts), shared_(shared), lines_(dz_tile) {
    // The order of thread blocks, fastest first: row blocks of a head, parts of its keys, heads,
    // batch entries.
    const AttentionArgs& args = parts.base;
    const int row_blocks = max(1, (args.seqlen_q + kBlockM - 1) / kBlockM);
    const int heads = kSumsHeads ? 1 : args.num_heads_q, batch = kSumsBatch ? 1 : args.batch;
    const int key_parts = static_cast<int>(gridDim.x) / (row_blocks * heads * batch);
    int number = static_cast<int>(blockIdx.x);
    tile_.row_block = number % row_blocks, number /= row_blocks;
    const int key_part = number % key_parts;
    number /= key_parts;
    tile_.head = number % heads, tile_.batch = number / heads;
    const int key_blocks = (args.seqlen_kv + kBlockN - 1) / kBlockN;
    const int blocks = (key_blocks + key_parts - 1) / key_parts;
    first_block_ = min(key_blocks, key_part * blocks);
    end_block_ = min(key_blocks, first_block_ + blocks);
  }

  __device__ __forceinline__ void run() {
    const AttentionArgs& args = parts_.base;
    if (args.seqlen_q == 0) return;
    lines_.start(args, tile_);
    const SummedRange heads = summed(kSumsHeads, args.num_heads_q, tile_.head);
    const SummedRange batch = summed(kSumsBatch, args.batch, tile_.batch);
    bool first = true;
    for (tile_.batch = batch.first; tile_.batch < batch.end; ++tile_.batch)
      for (tile_.head = heads.first; tile_.head < heads.end; ++tile_.head) {
        run_head(first);
        first = false;
      }
    if constexpr (kScoreGradient == kOfAlibi)
      lines_.write_one(args, {tile_.row_block, heads.first, batch.first}, sum_);
  }

 private:
  // Return the warp's first row, and this thread's first row. A thread also has the rows 16 m and
  // 16 m + 8 further down.
  __device__ __forceinline__ int warp_row() const {
    return tile_.row_block * kBlockM + static_cast<int>(threadIdx.x) / 32 * Side::kWarpRows;
  }
  __device__ __forceinline__ int thread_row() const {
    return warp_row() + static_cast<int>(threadIdx.x) % 32 / 4;
  }
  // Returns this thread's first column. A thread also has the columns 8 n and 8 n + 1 further on.
  __device__ __forceinline__ static int thread_column() {
    return static_cast<int>(threadIdx.x) % 4 * 2;
  }

  // Returns the blocks of keys that this thread block has.
  __device__ __forceinline__ BlockRange own_blocks(int first_row, int rows) const {
    BlockRange range = Side::blocks(parts_.base, first_row, rows);
    range.begin = max(range.begin, first_block_);
    range.end = max(range.begin, min(range.end, end_block_));
    return range;
  }

  __device__ __forceinline__ void run_head(bool first) {
    const BlockRange all = own_blocks(tile_.row_block * kBlockM, kBlockM);
    const BlockRange of_warp = own_blocks(warp_row(), Side::kWarpRows);
    if (kWritesDscores && first) clear_unseen(all);
    __syncthreads();  // no thread still reads the tiles of the last head
    Stream stream(parts_, tile_, all, shared_);
    int steps = stream.steps();
    if (steps == 0) return;
    stream.start(tile_);
    load_row_sums();
    StepCursor at = Stream::first_step(tile_, all);
#pragma unroll 1
    for (; steps > 0; --steps) {
      const unsigned slot = stream.acquire();
      Scores dz;
      const bool sees =
          of_warp.contains(at.block) && make_dz(at.block, slot, of_warp.needs_mask(at.block), dz);
      if (!sees) clear(dz);
      give(at.block, sees, first, dz);
      at.advance(all);
    }
    await_copies<0>();
  }

  __device__ __forceinline__ void load_row_sums() {
    const float* const sums = row_sums(parts_.base, tile_.batch, tile_.head) + thread_row();
    const int rows = padded_rows(parts_.base);
#pragma unroll
    for (int i = 0; i < 2 * kM; ++i) {
      l2_[i] = sums[8 * i];
      delta_[i] = sums[rows + 8 * i];
    }
  }

  __device__ __forceinline__ ElementPlace<false> place(int block) const {
    return {tile_.batch, tile_.head, thread_row(), block * kBlockN + thread_column()};
  }

  // Computes dz of a step. Returns false, and leaves dz undefined, if the warp sees no element of
  // the step.
  __device__ __forceinline__ bool make_dz(int block, unsigned slot, bool masked, Scores& dz) {
    SeenElements<kM, kN> seen;
    if (!seen.look(parts_, place(block))) return false;
    const DroppedElements<false, kM, kN> dropped(parts_, place(block));
    Scores s;
    multiply_rows<kHeadDimQk>(s, shared_, slot);
    multiply_rows<kHeadDimV>(dz, shared_ + kLayout.second, slot + kLayout.slot_second);
    dropped.zero(dz);
    if constexpr (kSloped) subtract_delta(dz);
    bend_scores(parts_, place(block), s, dz);
    const float scale = kScored ? 1.0f : parts_.base.softmax_scale_log2;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float p = exp2_approx(s[m][n][i] * scale - l2_[2 * m + i / 2]);
          dz[m][n][i] = p * (kSloped ? dz[m][n][i] : dz[m][n][i] - delta_[2 * m + i / 2]);
        }
      }
    }
    if (masked) hide(block, dz);
    seen.template hide<true>(s, dz);
    if constexpr (kUserScores) drop_rows_past_end(dz);
    scale_kept(parts_.dropout, dz);
    return true;
  }

  __device__ __forceinline__ void subtract_delta(Scores& dp) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) dp[m][n][i] -= delta_[2 * m + i / 2];
      }
    }
  }

  // A program may make NaN of rows that do not exist; sums take all.
  __device__ __forceinline__ void drop_rows_past_end(Scores& dz) const {
    const int rows = parts_.base.seqlen_q - thread_row();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (16 * m + i / 2 * 8 >= rows) dz[m][n][i] = 0.f;
      }
    }
  }

  // Sets hidden elements of dz to zero. It also hides keys past the end: K is zero there, and P may
  // be inf.
  __device__ __forceinline__ void hide(int block, Scores& dz) const {
    const int column = block * kBlockN + thread_column();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const KeyInterval<int> keys = visible_keys(parts_.base, thread_row() + 16 * m + 8 * half);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (!keys.contains(column + 8 * n + j)) dz[m][n][2 * half + j] = 0.f;
        }
      }
    }
  }

  __device__ __forceinline__ void give(int block, bool sees, bool first, const Scores& dz) {
    if constexpr (kWritesDscores) {
      if (sees || first) write(block, first, dz);
    } else if constexpr (kScoreGradient == kOfAlibi) {
      if (sees) add_distances(block, dz);
    } else {
      lines_.add(parts_.base, tile_, block, dz);
    }
  }

  // Writes to dscores: the first head that shares an element stores it, the other heads add to it.
  __device__ __forceinline__ void write(int block, bool first, const Scores& dz) const {
    const AttentionArgs& args = parts_.base;
    const OperandView& out = dscores_of(parts_.gradients);
    float* const base = static_cast<float*>(out.data) +
                        (kSumsBatch ? 0 : tile_.batch * out.batch_stride) +
                        (kSumsHeads ? 0 : tile_.head * out.head_stride);
    const int column = block * kBlockN + thread_column();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = thread_row() + 16 * m + 8 * half;
        if (row >= args.seqlen_q) continue;
        float* const to = base + row * out.row_stride + column;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (column + 8 * n + j < args.seqlen_kv)
              to[8 * n + j] = dz[m][n][2 * half + j] + (first ? 0.f : to[8 * n + j]);
        }
      }
    }
  }

  // Stores zeros in the blocks that no row of the tile sees.
  __device__ __forceinline__ void clear_unseen(const BlockRange& seen) const {
    Scores zero;
    clear(zero);
    for (int block = first_block_; block < end_block_; ++block)
      if (!seen.contains(block)) write(block, true, zero);
  }

  __device__ __forceinline__ void add_distances(int block, const Scores& dz) {
    const ScoreArgs& scores = parts_.scores;
    const int ends = kMask == Mask::kCausalTopLeft ? 0 : scores.seqlen_kv - scores.seqlen_q;
    const int diagonal = scores.q_position0 - scores.kv_position0 + ends;
    const int column = block * kBlockN + thread_column();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = thread_row() + 16 * m + i / 2 * 8;
          const int distance = distance_from_diagonal(row, column + 8 * n + i % 2, diagonal);
          sum_ -= dz[m][n][i] * static_cast<float>(distance);
        }
      }
    }
  }

  const GradientParts& parts_;
  unsigned shared_;
  ScoreGradientLines lines_;
  Tile tile_;
  int first_block_, end_block_;       // blocks of keys
  float l2_[2 * kM], delta_[2 * kM];  // for this thread's rows
  float sum_ = 0.f;
};

extern "C" __global__ void __launch_bounds__(GradientSide<false, true>::kLayout.threads,
                                             kBlocksPerSm)
    attune_kernel(  // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores, const __grid_constant__ AttentionArgs args,
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ GradientArgs gradients) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const GradientParts parts{args, gradients, scores, dropout};
  float* const dz_tile =
      reinterpret_cast<float*>(shared_memory + GradientSide<false, true>::kLayout.state);
  ScoreGradientTile(parts, shared_address(shared_memory), dz_tile).run();
}

}  // namespace attune
