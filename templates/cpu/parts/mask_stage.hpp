// SPDX-License-Identifier: Apache-2.0
// The mask program of prefill_cpu decides which of a block's keys the rows of a panel see. The
// program's ranges, or the caller's map, decide most blocks as a whole, or except for keys at their
// ends (mask_ranges.hpp). For other blocks the program is evaluated before
// the product, so that a hidden block costs no product. If some keys are seen and some are hidden,
// the program is applied to the scores.
#pragma once

#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/mask_ranges.hpp"
#include "cpu/parts/score_lines.hpp"
#include "cpu/parts/visibility.hpp"
#include "generated/mask_program.h"
#include "shared/kernel_arguments.h"

namespace attune {

// lo: all rows see all keys. hi: some row may see a key.
using Shown = BoolRange;

// Finds which of a block's keys the rows of a panel see.
class MaskStage {
 public:
  MaskStage(const KernelArguments& args, const Tile& rows, KeyRange keys)
      : scores_(args.scores),
        rows_(args.scores, rows.batch, rows.head_kv, rows.first),
        keys_(keys) {
    for (int lane = 0; lane < kPanelRows; ++lane) {
      counted_[lane] = lane < rows.count ? -1 : 0;
      on_head_[lane] = mask_head(scores_, rows_.batch, rows_.head[lane], rows_.kv_head);
      on_row_[lane] = mask_row(scores_, on_head_[lane], rows_.batch, rows_.head[lane],
                               rows_.kv_head, rows_.q_idx[lane]);
    }
    if constexpr (kMaskHasLines) find_lines();
  }

  Shown vote() const {
    bool any = false, all = true;
    for_shown([&](int, const PanelInts& shown) {
      any = any || __builtin_reduce_or(shown & counted_) != 0;
      all = all && __builtin_reduce_and(shown | ~counted_) != 0;
      return !(any && !all);
    });
    return {all, any};
  }

  // Hides scores and recomputes `largest`.
  void apply(Panel* panels, Panel& largest) const {
    largest = -kInfinity;
    for_shown([&](int key, const PanelInts& shown) {
      Panel& panel = panels[key - keys_.begin];
      panel = shown ? panel : Panel(-kInfinity);
      largest = larger(panel, largest);
      return true;
    });
  }

 private:
  void find_lines() {
    lines_.keys = 2147483647;
    for (int lane = 0; lane < kPanelRows; ++lane)
      mask_find_lines(scores_, on_head_[lane], on_row_[lane], column(lane, keys_.begin),
                      rows_.batch, rows_.head[lane], rows_.kv_head, rows_.q_idx[lane],
                      scores_.kv_position0 + keys_.begin, lane, lines_);
  }

  // Calls take(key, shown) for each key until it returns false. `shown` is -1 in lanes that see the
  // key.
  template <class Take>
  void for_shown(const Take& take) const {
    int n = keys_.begin;
    if constexpr (kMaskHasLines) {
      for (; n + kMaskStagedKeys <= keys_.end && n + kMaskStagedKeys - keys_.begin <= lines_.keys;
           n += kMaskStagedKeys) {
        MaskStaged staged;
        mask_stage_lines(lines_, n - keys_.begin, staged);
        for (int key = 0; key < kMaskStagedKeys; ++key)
          if (!take(n + key, shown<true>(n + key, staged, key))) return;
      }
    }
    for (; n < keys_.end; ++n)
      if (!take(n, shown<false>(n, {}, 0))) return;
  }

  MaskColumn column(int lane, int key) const {
    return mask_column(scores_, on_head_[lane], rows_.batch, rows_.head[lane], rows_.kv_head,
                       scores_.kv_position0 + key);
  }

  template <bool kNear>
  PanelInts shown(int key, const MaskStaged& staged, int staged_key) const {
    alignas(kVectorBytes) int all[kPanelRows];
    const int kv_idx = scores_.kv_position0 + key;
    const MaskColumn of_first = column(0, key);
#pragma clang loop vectorize(enable) interleave_count(kVectors)
    for (int lane = 0; lane < kPanelRows; ++lane) {
      const MaskColumn on_column = kGqaRatio == 1 ? of_first : column(lane, key);
      bool is_shown;
      if constexpr (kNear)
        is_shown = mask_near_element(scores_, on_head_[lane], on_row_[lane], on_column, rows_.batch,
                                     rows_.head[lane], rows_.kv_head, rows_.q_idx[lane], kv_idx,
                                     staged, staged_key, lane);
      else
        is_shown = mask_element(scores_, on_head_[lane], on_row_[lane], on_column, rows_.batch,
                                rows_.head[lane], rows_.kv_head, rows_.q_idx[lane], kv_idx);
      all[lane] = is_shown ? -1 : 0;
    }
    PanelInts ints;
    __builtin_memcpy(&ints, all, sizeof(ints));
    return ints;
  }

  const ScoreArgs& scores_;
  PanelRows rows_;
  PanelInts counted_;  // -1 for rows that exist
  KeyRange keys_;
  MaskLines lines_;
  alignas(kVectorBytes) MaskHead on_head_[kPanelRows];
  alignas(kVectorBytes) MaskRow on_row_[kPanelRows];
};

// Returns the number of keys at one end of a range that no row sees. The step doubles while its
// keys are hidden: a visible end takes one query, and the end of a document takes a few.
template <bool kFromEnd>
inline int hidden_keys(const ScoreArgs& scores, const Tile& rows, KeyRange keys) {
  int hidden = 0;
  for (int step = 1; step > 0;) {
    const int next = hidden + step;
    const bool is_hidden =
        next <= keys.end - keys.begin &&
        !range_of_rows(scores, rows,
                       kFromEnd ? KeyRange{keys.end - next, keys.end - hidden}
                                : KeyRange{keys.begin + hidden, keys.begin + next})
             .hi;
    hidden = is_hidden ? next : hidden;
    step = is_hidden ? 2 * step : step / 2;
  }
  return hidden;
}

// Removes keys that no row sees from both ends of a range. Returns what ranges tell about the keys
// that are left.
inline Shown narrow_to(const ScoreArgs& scores, const Tile& rows, KeyRange& keys) {
  const Shown range = range_of_rows(scores, rows, keys);
  if (range.lo == range.hi) return range;
  const int before = hidden_keys<false>(scores, rows, keys);
  keys.begin += before;
  const int behind = hidden_keys<true>(scores, rows, keys);
  keys.end -= behind;
  if (keys.begin == keys.end) return {false, false};
  return before + behind > 0 ? range_of_rows(scores, rows, keys) : range;
}

// Does what narrow_to does, but exactly.
inline Shown shown_to(const KernelArguments& args, const Tile& rows, KeyRange& keys) {
  const Shown range = narrow_to(args.scores, rows, keys);
  return range.lo == range.hi ? range : MaskStage(args, rows, keys).vote();
}

inline void hide_scores(const KernelArguments& args, const Tile& rows, KeyRange keys, Panel* scores,
                        Panel& largest) {
  MaskStage(args, rows, keys).apply(scores, largest);
}

}  // namespace attune
