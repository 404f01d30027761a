// SPDX-License-Identifier: Apache-2.0
// Rows of the list of one K/V head, and their indices for score and mask programs.
#pragma once

#include "cpu/parts/simd.hpp"
#include "shared/score_args.h"

namespace attune {

// A tile: rows [first, first + count) of the list of one K/V head.
struct Tile {
  int batch;
  int head_kv;
  long long first;
  int count;
};

// The queries of these rows, and the heads to which they may belong.
struct RowsOfList {
  int first_row, last_row;
  int first_head, last_head;
};
inline RowsOfList rows_of_list(const Tile& rows) {
  const long long last = rows.first + rows.count - 1;
  const int first_row = static_cast<int>(rows.first / kGqaRatio);
  const int last_row = static_cast<int>(last / kGqaRatio);
  const bool one_row = first_row == last_row;
  const int head = rows.head_kv * kGqaRatio;
  return {first_row, last_row, head + (one_row ? static_cast<int>(rows.first % kGqaRatio) : 0),
          head + (one_row ? static_cast<int>(last % kGqaRatio) : kGqaRatio - 1)};
}

// The indices of a panel's rows, one row per lane. Lanes past the last row are computed, but their
// results are not used.
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
