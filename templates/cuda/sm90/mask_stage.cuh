// SPDX-License-Identifier: Apache-2.0
// Applies the mask program of an sm_90 kernel to the scores, only in blocks that the rows see
// partly (shared/block_map.h). Values that depend only on a row are computed anew for each such
// block, to save registers.
//
// The near form of the program (mask_steps, score_step in generator/score/print/source_text.hpp) is
// used if the lines of all captures reach past the block, with unit stride and even addresses.
// Otherwise (rare) a loop collects one bit per element and keeps the addresses of one column. The
// loop also runs if the near form needs an address per element: registers hold the accumulators,
// and so many addresses would not fit.
#pragma once

#include "cuda/parts/block_list.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/score_loads.cuh"
#include "cuda/sm90/tile_rows.cuh"
#include "cuda/sm90/tile_stream.cuh"
#include "generated/mask_program.h"
#include "generated/mask_steps.h"

namespace attune {

class MaskStage {
 public:
  // The stage for a warpgroup whose rows begin at `first_row`, and for a block of keys that begins
  // at `first_key`.
  __device__ __forceinline__ MaskStage(const KernelParts& parts, const PrefillTile& tile,
                                       int first_row, int first_key)
      : scores_(parts.scores) {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    batch_ = scores_.batch0 + tile.batch;
    kv_head_ = scores_.kv_head0 + tile.head / kGqaRatio;
    key_ = scores_.kv_position0 + first_key + thread % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      head_[half] = scores_.head0 + tile.head + thread_head(thread) + half * kNextHead;
      q_idx_[half] = scores_.q_position0 + first_row + thread_row(thread) + half * kNextRow;
    }
  }

  template <int kCount>
  __device__ __forceinline__ void hide(float (&s)[kCount]) const {
    if constexpr (mask_steps::kScoreReadsElements) return hide_exactly(s);
    mask_steps::ScoreHead on_head[2];
    mask_steps::ScoreRow on_row[2];
    mask_steps::ScoreStep steps[2];
    constexpr int kSpan = 2 * kCount - 6;  // distance from a thread's first column to its last
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      on_head[half] = mask_steps::score_head(scores_, 1.f, batch_, head_[half], kv_head_);
      on_row[half] = mask_steps::score_row(scores_, on_head[half], batch_, head_[half], kv_head_,
                                           q_idx_[half]);
      steps[half] = mask_steps::score_step(scores_, on_head[half], on_row[half], batch_,
                                           head_[half], kv_head_, q_idx_[half], key_, kSpan);
    }
    if constexpr (kNextHead == 0) mask_steps::score_share(steps[0], kNextRow, &steps[1]);
    if (!mask_steps::kScoreHasConditions || __all_sync(~0u, steps[0].is_near && steps[1].is_near)) {
      hide_near(on_head, on_row, steps, s);
    } else {
      hide_exactly(s);
    }
  }

 private:
  template <int kCount>
  __device__ __forceinline__ void hide_near(const mask_steps::ScoreHead (&on_head)[2],
                                            const mask_steps::ScoreRow (&on_row)[2],
                                            const mask_steps::ScoreStep (&steps)[2],
                                            float (&s)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      mask_steps::ScoreLoaded loaded[2][2];  // rows, columns
      mask_steps::score_loads(steps[0], 2 * i, 0u, loaded[0]);
      mask_steps::score_loads(steps[1], 2 * i, 0u, loaded[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int offset = 2 * i + j;
        mask_steps::ScoreColumn column;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (half == 0 || kNextHead > 0)
            column =
                mask_steps::score_near_column(scores_, on_head[half], steps[half], loaded[half][j],
                                              batch_, head_[half], kv_head_, key_ + offset, offset);
          float& score = s[i + j + 2 * half];
          score = mask_steps::score_near_element(
              scores_, on_head[half], on_row[half], column, steps[half], loaded[half][j], score,
              batch_, head_[half], kv_head_, q_idx_[half], key_ + offset, offset);
        }
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void hide_exactly(float (&s)[kCount]) const {
    constexpr int kWords = (kCount + 31) / 32;
    constexpr int kUnused = 32 * kWords - kCount;  // the lowest bits of a word hold no element
    unsigned hidden[kWords] = {};
    MaskHead on_head[2];
    MaskRow on_row[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      on_head[half] = mask_head(scores_, batch_, head_[half], kv_head_);
      on_row[half] = mask_row(scores_, on_head[half], batch_, head_[half], kv_head_, q_idx_[half]);
    }
#pragma unroll 1
    for (int c = 0; c < kCount / 2; ++c) {  // over the thread's columns
      const int kv_idx = key_ + c / 2 * 8 + c % 2;
      unsigned two = 0;
      MaskColumn column;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 0 || kNextHead > 0)
          column = mask_column(scores_, on_head[half], batch_, head_[half], kv_head_, kv_idx);
        const bool seen = mask_element(scores_, on_head[half], on_row[half], column, batch_,
                                       head_[half], kv_head_, q_idx_[half], kv_idx);
        two |= seen ? 0u : 1u << half;
      }
#pragma unroll
      for (int w = 0; w + 1 < kWords; ++w) hidden[w] = __funnelshift_r(hidden[w], hidden[w + 1], 2);
      hidden[kWords - 1] = hidden[kWords - 1] >> 2 | two << 30;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int column = i / 4 * 2 + i % 2, half = i / 2 % 2;
      const int bit = kUnused + 2 * column + half;
      if ((hidden[bit / 32] >> bit % 32 & 1u) != 0) s[i] = hidden_score();
    }
  }

  const ScoreArgs& scores_;
  int batch_;
  int kv_head_;
  int key_;  // this thread's first key
  int head_[2];
  int q_idx_[2];
};

using HidingStage = MaskStage;

}  // namespace attune
