// SPDX-License-Identifier: Apache-2.0
// The indices of a panel's rows for score and mask programs, one row per lane. Lanes past the last
// row are computed, but their results are not used.
#pragma once

#include "cpu/parts/simd.hpp"
#include "shared/score_args.h"

namespace attune {

struct PanelRows {
  // The rows begin at row `first` of the list of one K/V head.
  PanelRows(const ScoreArgs& scores, int in_batch, int head_kv, long long first)
      : batch(scores.batch0 + in_batch), kv_head(scores.kv_head0 + head_kv) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const long long index = first + lane;
      head[lane] = scores.head0 + head_kv * kGqaRatio + static_cast<int>(index % kGqaRatio);
      q_idx[lane] = scores.q_position0 + static_cast<int>(index / kGqaRatio);
    }
  }

  int batch;
  int kv_head;
  alignas(kVectorBytes) int head[kPanelRows];
  alignas(kVectorBytes) int q_idx[kPanelRows];
};

}  // namespace attune
