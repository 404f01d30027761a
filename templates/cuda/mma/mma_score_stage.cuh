// SPDX-License-Identifier: Apache-2.0
// The score stage of the mma.sync kernels: applies the score program between S = Q K^T and the
// softmax. It does the same as score_stage.cuh, on the fragments of mma_prefill.cuh.
#pragma once

#include "cuda/mma/mma_products.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "generated/score_program.h"

namespace attune {

class ScoreStage {
 public:
  __device__ __forceinline__ ScoreStage(const KernelParts& parts, const Tile& tile)
      : ScoreStage(parts, tile, row_of(tile, 0, 0)) {}

  // Replaces raw scores by log2(e) * program(q.k * softmax_scale). The host has set
  // args.softmax_scale_log2 to log2(e), so factors.of_scores(m, n, step) contains log2(e) instead
  // of softmax_scale * log2(e). to_natural_ turns log2(e) into softmax_scale.
  template <class Factors>
  __device__ __forceinline__ void apply(const Factors& factors, const typename Factors::Step& step,
                                        int block, Scores& s) const {
    const int key = scores_.kv_position0 + block * kBlockN +
                    reread_thread_index() % 4 * (kQuarteredKeys ? 4 : 2);
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int kv_idx = reread(key) + (kQuarteredKeys ? n / 2 * 16 + n % 2 * 2 : n * 8) + j;
        const ScoreColumn column = score_column(scores_, on_head_, batch_, head_, kv_head_, kv_idx);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          const float scale = factors.of_scores(m, n, step) * to_natural_;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& score = s[m][n][2 * half + j];
            score = kScoreLog2E * score_element(scores_, on_head_, on_row_[m][half], column,
                                                score * scale, batch_, head_, kv_head_,
                                                q_idx(m, half), kv_idx);
          }
        }
      }
    }
  }

 private:
  // `first_row` is the thread's first row. A thread also has the rows 16 m and 16 m + 8 further
  // down.
  __device__ __forceinline__ ScoreStage(const KernelParts& parts, const Tile& tile, int first_row)
      : scores_(parts.scores),
        batch_(parts.scores.batch0 + tile.batch),
        head_(parts.scores.head0 + tile.head),
        kv_head_(parts.scores.kv_head0 + tile.head / kGqaRatio),
        first_row_(parts.scores.q_position0 + first_row),
        to_natural_(parts.base.softmax_scale * kScoreLn2),
        on_head_(score_head(scores_, batch_, head_, kv_head_)) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        on_row_[m][half] = score_row(scores_, on_head_, batch_, head_, kv_head_, q_idx(m, half));
    }
  }
  __device__ __forceinline__ int q_idx(int m, int half) const {
    return first_row_ + 16 * m + 8 * half;
  }

  const ScoreArgs& scores_;
  int batch_;
  int head_;
  int kv_head_;
  int first_row_;
  float to_natural_;  // softmax_scale / log2(e)
  ScoreHead on_head_;
  ScoreRow on_row_[kRowTiles][2];
};

}  // namespace attune
