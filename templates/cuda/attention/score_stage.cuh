// SPDX-License-Identifier: Apache-2.0
// The score stage of the sm_90 kernels: what stands between S = Q K^T and the softmax beyond the
// scale, the mask and the window. The program is generated (generator/core/score/): it is in the
// text of a kernel only where its problem has one. Its parts that depend on the head or the row
// alone are computed once a tile, those of a column once for both rows of a thread.
#pragma once

#include "cuda/attention/kernel_parts.cuh"
#include "cuda/attention/score_functions.cuh"
#include "cuda/attention/tile_rows.cuh"
#include "cuda/attention/tile_scheduler.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "generated/score_program.h"

namespace attune {

class ScoreStage {
 public:
  // For the warpgroup whose rows begin at `first_row`.
  __device__ __forceinline__ void begin(const KernelParts& parts, const PrefillTile& tile,
                                        int first_row) {
    scores_ = &parts.scores;
    const ScoreArgs& scores = parts.scores;
    const int thread = reread_thread_index() % kWarpgroupThreads;
    batch_ = scores.batch0 + tile.batch;
    kv_head_ = scores.kv_head0 + tile.head / kGqaRatio;
    to_natural_ = parts.base.softmax_scale * kScoreLn2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      q_idx_[half] = scores.q_position0 + first_row + thread_row(thread) + half * kNextRow;
      head_[half] = scores.head0 + tile.head + thread_head(thread) + half * kNextHead;
      on_head_[half] = score_head(scores, batch_, head_[half], kv_head_);
      on_row_[half] =
          score_row(scores, on_head_[half], batch_, head_[half], kv_head_, q_idx_[half]);
    }
  }

  // Scores times `scale_log2`, which has log2(e) in the place of softmax_scale * log2(e) (args), become what
  // the program makes of q.k * softmax_scale. Returns what the softmax multiplies them by.
  template <int kCount>
  __device__ __forceinline__ float apply(float scale_log2, int first_key,
                                         float (&s)[kCount]) const {
    const ScoreArgs& scores = *scores_;
    const float scale = scale_log2 * to_natural_;
    const int key = scores.kv_position0 + first_key + reread_thread_index() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int kv_idx = reread(key) + i / 4 * 8 + j;  // addresses of one column at a time
        const ScoreColumn column =
            score_column(scores, on_head_[0], batch_, head_[0], kv_head_, kv_idx);
        s[i + j] = score_element(scores, on_head_[0], on_row_[0], column, s[i + j] * scale, batch_,
                                 head_[0], kv_head_, q_idx_[0], kv_idx);
        const ScoreColumn below =
            kNextHead == 0 ? column
                           : score_column(scores, on_head_[1], batch_, head_[1], kv_head_, kv_idx);
        s[i + j + 2] = score_element(scores, on_head_[1], on_row_[1], below, s[i + j + 2] * scale,
                                     batch_, head_[1], kv_head_, q_idx_[1], kv_idx);
      }
    }
    return kScoreLog2E;
  }

 private:
  const ScoreArgs* scores_;
  int batch_;
  int kv_head_;
  float to_natural_;  // softmax_scale / log2(e)
  int head_[2];       // of the thread's two rows
  int q_idx_[2];
  ScoreHead on_head_[2];
  ScoreRow on_row_[2];
};

}  // namespace attune
