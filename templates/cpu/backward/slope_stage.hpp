// SPDX-License-Identifier: Apache-2.0
// The derivatives of a panel's scores by q.k * softmax_scale (generated/slope_program.h), for
// backward_cpu.
#pragma once

#include "cpu/parts/panel_rows.hpp"
#include "cpu/parts/score_functions.hpp"
#include "cpu/parts/visibility.hpp"
#include "generated/slope_program.h"
#include "shared/kernel_arguments.h"

namespace attune {

// Finds slopes of the rows from `first_index` on, in the list of the tile's K/V head. `panels` are
// scores before the score stage.
template <class Tile>
inline void find_slopes(const KernelArguments& args, const Tile& tile, long long first_index,
                        KeyRange keys, const Panel* panels, Panel* slopes) {
  const ScoreArgs& scores = args.scores;
  const PanelRows rows(scores, tile.batch, tile.head_kv, first_index);
  const float to_natural = args.softmax_scale * 0.6931471805599453f;
  alignas(kVectorBytes) SlopeHead on_head[kPanelRows];
  alignas(kVectorBytes) SlopeRow on_row[kPanelRows];
  for (int lane = 0; lane < kPanelRows; ++lane) {
    on_head[lane] = slope_head(scores, rows.batch, rows.head[lane], rows.kv_head);
    on_row[lane] = slope_row(scores, on_head[lane], rows.batch, rows.head[lane], rows.kv_head,
                             rows.q_idx[lane]);
  }
  for (int n = keys.begin; n < keys.end; ++n) {
    alignas(kVectorBytes) float s[kPanelRows];
    __builtin_memcpy(s, &panels[n - keys.begin], sizeof(s));
    const int kv_idx = scores.kv_position0 + n;
    const auto column = [&](int lane) {
      return slope_column(scores, on_head[lane], rows.batch, rows.head[lane], rows.kv_head, kv_idx);
    };
    const SlopeColumn of_first = column(0);
#pragma clang loop vectorize(enable) interleave_count(kVectors)
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const SlopeColumn on_column = kGqaRatio == 1 ? of_first : column(lane);
      s[lane] = slope_element(scores, on_head[lane], on_row[lane], on_column, s[lane] * to_natural,
                              rows.batch, rows.head[lane], rows.kv_head, rows.q_idx[lane], kv_idx);
    }
    __builtin_memcpy(&slopes[n - keys.begin], s, sizeof(s));
  }
}

}  // namespace attune
