// SPDX-License-Identifier: Apache-2.0
// The mask program of prefill_cpu: which of a block's keys rows of a panel see. The program's ranges decide most blocks as a whole
// (generator/core/score/range_text.hpp); in the others it is evaluated ahead of the product, so that a block that is hidden costs
// none, and applied where some keys are seen and some hidden.
#pragma once

#include "cpu/score_ranges.hpp"
#include "cpu/simd.hpp"
#include "cpu/visibility.hpp"
#include "generated/mask_program.h"
#include "generated/mask_ranges.h"
#include "shared/kernel_arguments.h"

namespace attune {

// Rows [first, first + count) of the list of one K/V head.
struct ListRows {
  int batch;
  int head_kv;
  long long first;
  int count;
};

// What the ranges tell of all rows and keys together.
inline BoolRange range_of_rows(const ScoreArgs& scores, const ListRows& rows, KeyRange keys) {
  const long long last = rows.first + rows.count - 1;
  const int first_row = static_cast<int>(rows.first / kGqaRatio);
  const int last_row = static_cast<int>(last / kGqaRatio);
  const int head = scores.head0 + rows.head_kv * kGqaRatio;
  const bool one_row = first_row == last_row;
  const IntRange heads{head + (one_row ? static_cast<int>(rows.first % kGqaRatio) : 0),
                       head + (one_row ? static_cast<int>(last % kGqaRatio) : kGqaRatio - 1)};
  return mask_range(scores, int_range(scores.batch0 + rows.batch), heads,
                    int_range(scores.kv_head0 + rows.head_kv),
                    {scores.q_position0 + first_row, scores.q_position0 + last_row},
                    {scores.kv_position0 + keys.begin, scores.kv_position0 + keys.end - 1});
}

// A panel's rows, one a lane. Those behind the last one are computed and not looked at.
class MaskStage {
 public:
  MaskStage(const KernelArguments& args, const ListRows& rows)
      : scores_(args.scores),
        rows_(rows),
        batch_(args.scores.batch0 + rows.batch),
        kv_head_(args.scores.kv_head0 + rows.head_kv) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const long long index = rows.first + lane;
      head_[lane] = scores_.head0 + rows.head_kv * kGqaRatio + static_cast<int>(index % kGqaRatio);
      q_idx_[lane] = scores_.q_position0 + static_cast<int>(index / kGqaRatio);
      on_head_[lane] = mask_head(scores_, batch_, head_[lane], kv_head_);
      on_row_[lane] =
          mask_row(scores_, on_head_[lane], batch_, head_[lane], kv_head_, q_idx_[lane]);
    }
  }

  // Whether any row sees any key, and whether all see all.
  BoolRange vote(KeyRange keys) const {
    bool any = false, all = true;
    for (int n = keys.begin; n < keys.end && !(any && !all); ++n) {
      bool shown[kPanelRows];
      look_at(n, shown);
      for (int lane = 0; lane < rows_.count; ++lane) {
        any = any || shown[lane];
        all = all && shown[lane];
      }
    }
    return {all, any};
  }

  // Hides scores and finds `largest` anew.
  void apply(KeyRange keys, Panel* panels, Panel& largest) const {
    largest = -kInfinity;
    for (int n = keys.begin; n < keys.end; ++n) {
      bool shown[kPanelRows];
      look_at(n, shown);
      float s[kPanelRows];
      __builtin_memcpy(s, &panels[n - keys.begin], sizeof(s));
      for (int lane = 0; lane < kPanelRows; ++lane) s[lane] = shown[lane] ? s[lane] : -kInfinity;
      __builtin_memcpy(&panels[n - keys.begin], s, sizeof(s));
      largest = larger(panels[n - keys.begin], largest);
    }
  }

 private:
  void look_at(int key, bool (&shown)[kPanelRows]) const {
    const int kv_idx = scores_.kv_position0 + key;
    const MaskColumn of_first =
        mask_column(scores_, on_head_[0], batch_, head_[0], kv_head_, kv_idx);
#pragma clang loop vectorize(enable)
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const MaskColumn column = kGqaRatio == 1 ? of_first
                                               : mask_column(scores_, on_head_[lane], batch_,
                                                             head_[lane], kv_head_, kv_idx);
      shown[lane] = mask_element(scores_, on_head_[lane], on_row_[lane], column, batch_,
                                 head_[lane], kv_head_, q_idx_[lane], kv_idx);
    }
  }

  const ScoreArgs& scores_;
  ListRows rows_;
  int batch_;
  int kv_head_;
  int head_[kPanelRows];
  int q_idx_[kPanelRows];
  MaskHead on_head_[kPanelRows];
  MaskRow on_row_[kPanelRows];
};

// {whether all rows see all keys, whether any sees one}: both ways are exact.
inline BoolRange shown_to(const KernelArguments& args, const ListRows& rows, KeyRange keys) {
  const BoolRange range = range_of_rows(args.scores, rows, keys);
  return range.lo == range.hi ? range : MaskStage(args, rows).vote(keys);
}

inline void hide_scores(const KernelArguments& args, const ListRows& rows, KeyRange keys,
                        Panel* scores, Panel& largest) {
  MaskStage(args, rows).apply(keys, scores, largest);
}

}  // namespace attune
