// SPDX-License-Identifier: Apache-2.0
// Finds the keys that rows see according to the caller's map (shared/block_map.h).
// range_of_rows.hpp does the same for a mask program.
#pragma once

#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/score_ranges.hpp"
#include "cpu/parts/visibility.hpp"
#include "shared/block_map.h"

namespace attune {

inline BoolRange range_of_rows(const ScoreArgs& scores, const ListRows& rows, KeyRange keys) {
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

}  // namespace attune
