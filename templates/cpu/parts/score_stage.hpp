// SPDX-License-Identifier: Apache-2.0
// The score stage of prefill_cpu changes scores between S^T = K Q^T and the softmax, in addition to
// the scale, the mask and the window. The program is generated (generator/score/) for one
// element. The compiler vectorises a loop of it over the lanes of a panel.
#pragma once

#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/pack_kv.hpp"
#include "cpu/parts/score_lines.hpp"
#include "cpu/parts/visibility.hpp"
#include "generated/score_program.h"
#include "shared/kernel_arguments.h"

namespace attune {

// The score stage of a panel. The panel's first row is row `first_index` of the list of one K/V
// head.
class ScoreStage {
 public:
  ScoreStage(const KernelArguments& args, int batch, int head_kv, long long first_index)
      : scores_(args.scores),
        rows_(args.scores, batch, head_kv, first_index),
        to_natural_(args.softmax_scale * 0.6931471805599453f) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      on_head_[lane] = score_head(scores_, rows_.batch, rows_.head[lane], rows_.kv_head);
      on_row_[lane] = score_row(scores_, on_head_[lane], rows_.batch, rows_.head[lane],
                                rows_.kv_head, rows_.q_idx[lane]);
    }
  }

  // Prefetches the lines that apply() will read for these keys, while the keys' scores are
  // computed.
  void fetch(KeyRange keys) const {
    if constexpr (kScoreHasLines) {
      const ScoreLines lines = lines_from(keys.begin);
      const int count = least(keys.end - keys.begin, lines.keys);
      for (int lane = 0; lane < kPanelRows; ++lane) score_fetch_lines(lines, lane, count);
    }
  }

  // Applies the program to scores. On entry they are q.k * log2(e), because softmax_scale_log2 in
  // the arguments is then log2(e). They become log2(e) times the program's result for q.k *
  // softmax_scale. Finds `largest` anew.
  void apply(KeyRange keys, Panel* panels, Panel& largest) const {
    Panel of_keys = -kInfinity;  // a local variable stays in registers
    int n = keys.begin;
    if constexpr (kScoreHasLines) {
      const ScoreLines lines = lines_from(keys.begin);
      while (n < keys.end && n + kScoreStagedKeys - keys.begin <= lines.keys) {
        ScoreStaged staged;
        score_stage_lines(lines, n - keys.begin, staged);
        for (int key = 0; key < kScoreStagedKeys && n < keys.end; ++key, ++n)
          apply_to_key<true>(n, staged, key, panels[n - keys.begin], of_keys);
      }
    }
    for (; n < keys.end; ++n) apply_to_key<false>(n, {}, 0, panels[n - keys.begin], of_keys);
    largest = of_keys;
  }

 private:
  ScoreLines lines_from(int key) const {
    ScoreLines lines;
    lines.keys = 2147483647;
    for (int lane = 0; lane < kPanelRows; ++lane)
      score_find_lines(scores_, on_head_[lane], on_row_[lane], column(lane, key), rows_.batch,
                       rows_.head[lane], rows_.kv_head, rows_.q_idx[lane],
                       scores_.kv_position0 + key, lane, lines);
    return lines;
  }

  ScoreColumn column(int lane, int key) const {
    return score_column(scores_, on_head_[lane], rows_.batch, rows_.head[lane], rows_.kv_head,
                        scores_.kv_position0 + key);
  }

  template <bool kNear>
  void apply_to_key(int n, const ScoreStaged& staged, int staged_key, Panel& panel,
                    Panel& largest) const {
    alignas(kVectorBytes) float s[kPanelRows];
    __builtin_memcpy(s, &panel, sizeof(s));
    const int kv_idx = scores_.kv_position0 + n;
    const ScoreColumn of_first = column(0, n);
#pragma clang loop vectorize(enable) interleave_count(kVectors)
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const ScoreColumn on_column = kGqaRatio == 1 ? of_first : column(lane, n);
      const float natural = s[lane] * to_natural_;
      float score;
      if constexpr (kNear)
        score = score_near_element(scores_, on_head_[lane], on_row_[lane], on_column, natural,
                                   rows_.batch, rows_.head[lane], rows_.kv_head, rows_.q_idx[lane],
                                   kv_idx, staged, staged_key, lane);
      else
        score =
            score_element(scores_, on_head_[lane], on_row_[lane], on_column, natural, rows_.batch,
                          rows_.head[lane], rows_.kv_head, rows_.q_idx[lane], kv_idx);
      s[lane] = 1.4426950408889634f * score;
    }
    __builtin_memcpy(&panel, s, sizeof(s));
    largest = larger(panel, largest);
  }

  const ScoreArgs& scores_;
  PanelRows rows_;
  float to_natural_;  // softmax_scale / log2(e)
  alignas(kVectorBytes) ScoreHead on_head_[kPanelRows];
  alignas(kVectorBytes) ScoreRow on_row_[kPanelRows];
};

}  // namespace attune
