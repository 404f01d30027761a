// SPDX-License-Identifier: Apache-2.0
// The score stage of prefill_cpu: what stands between S^T = K Q^T and the softmax beyond the scale, the mask and the window. The
// program is generated (generator/core/score/), for one element; a loop over the lanes of a panel makes vectors of it.
#pragma once

#include "cpu/score_functions.hpp"
#include "cpu/simd.hpp"
#include "cpu/visibility.hpp"
#include "generated/score_program.h"
#include "shared/kernel_arguments.h"

namespace attune {

// Scores of a panel's rows, whose first is row `first_index` of the list of one K/V head.
class ScoreStage {
 public:
  ScoreStage(const KernelArguments& args, int batch, int head_kv, long long first_index)
      : scores_(args.scores),
        batch_(args.scores.batch0 + batch),
        kv_head_(args.scores.kv_head0 + head_kv),
        to_natural_(args.softmax_scale * 0.6931471805599453f) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const long long index = first_index + lane;
      head_[lane] = scores_.head0 + head_kv * kGqaRatio + static_cast<int>(index % kGqaRatio);
      q_idx_[lane] = scores_.q_position0 + static_cast<int>(index / kGqaRatio);
      on_head_[lane] = score_head(scores_, batch_, head_[lane], kv_head_);
      on_row_[lane] =
          score_row(scores_, on_head_[lane], batch_, head_[lane], kv_head_, q_idx_[lane]);
    }
  }

  // Scores, which have log2(e) in the place of softmax_scale * log2(e) (args), become log2(e) times
  // what the program makes of q.k * softmax_scale. Finds `largest` anew.
  void apply(KeyRange keys, Panel* panels, Panel& largest) const {
    largest = -kInfinity;
    for (int n = keys.begin; n < keys.end; ++n) {
      float s[kPanelRows];
      __builtin_memcpy(s, &panels[n - keys.begin], sizeof(s));
      const int kv_idx = scores_.kv_position0 + n;
      const ScoreColumn of_first =
          score_column(scores_, on_head_[0], batch_, head_[0], kv_head_, kv_idx);
#pragma clang loop vectorize(enable)
      for (int lane = 0; lane < kPanelRows; ++lane) {
        const ScoreColumn column = kGqaRatio == 1 ? of_first
                                                  : score_column(scores_, on_head_[lane], batch_,
                                                                 head_[lane], kv_head_, kv_idx);
        s[lane] = 1.4426950408889634f * score_element(scores_, on_head_[lane], on_row_[lane],
                                                      column, s[lane] * to_natural_, batch_,
                                                      head_[lane], kv_head_, q_idx_[lane], kv_idx);
      }
      __builtin_memcpy(&panels[n - keys.begin], s, sizeof(s));
      largest = larger(panels[n - keys.begin], largest);
    }
  }

 private:
  const ScoreArgs& scores_;
  int batch_;
  int kv_head_;
  float to_natural_;  // softmax_scale / log2(e)
  int head_[kPanelRows];
  int q_idx_[kPanelRows];
  ScoreHead on_head_[kPanelRows];
  ScoreRow on_row_[kPanelRows];
};

}  // namespace attune
