// SPDX-License-Identifier: Apache-2.0
// Finds the keys that rows see as far as ranges tell: those of a mask program, or the caller's map
// (shared/block_map.h), if there is one.
#pragma once

#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/none/features.hpp"
#include "cpu/parts/score_ranges.hpp"
#include "cpu/parts/visibility.hpp"
#include "generated/mask_ranges.h"
#include "shared/block_map.h"
#include "shared/kernel_arguments.h"

namespace attune {

inline BoolRange range_in_map(const ScoreArgs& scores, const Tile& rows, KeyRange keys) {
  const ScoreCapture& granules = scores.captures[kMapCapture];
  const RowsOfList in = rows_of_list(rows);
  const int batch = scores.batch0 + rows.batch;
  const int last_row = (scores.q_position0 + in.last_row) / kGranuleRows;
  const int last_key = (scores.kv_position0 + keys.end - 1) / kGranuleKeys;
  int any = 0, all = kSeenWhole;
  for (int head = in.first_head; head <= in.last_head; ++head)
    for (int row = (scores.q_position0 + in.first_row) / kGranuleRows; row <= last_row; ++row)
      for (int key = (scores.kv_position0 + keys.begin) / kGranuleKeys; key <= last_key; ++key) {
        const int granule =
            load_capture<CaptureType::kUint8>(granules, batch, scores.head0 + head, row, key);
        any |= granule;
        all &= granule;
      }
  if constexpr (kMapHides) return {all != 0, any != 0};  // the map is the mask
  return {all == kSeenWhole, any != 0};
}

inline BoolRange range_of_program(const ScoreArgs& scores, const Tile& rows, KeyRange keys) {
  const RowsOfList in = rows_of_list(rows);
  const MaskRowRanges on_rows =
      mask_row_ranges(scores, int_range(scores.batch0 + rows.batch),
                      {scores.head0 + in.first_head, scores.head0 + in.last_head},
                      int_range(scores.kv_head0 + rows.head_kv),
                      {scores.q_position0 + in.first_row, scores.q_position0 + in.last_row});
  return mask_range(scores, on_rows,
                    {scores.kv_position0 + keys.begin, scores.kv_position0 + keys.end - 1});
}

constexpr auto range_of_rows = kGranules ? range_in_map : range_of_program;

}  // namespace attune
