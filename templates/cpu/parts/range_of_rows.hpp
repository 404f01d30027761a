// SPDX-License-Identifier: Apache-2.0
// Finds the keys that rows see according to the ranges of a mask program. granules_of_rows.hpp does
// the same for a caller's map.
#pragma once

#include "cpu/parts/list_rows.hpp"
#include "cpu/parts/score_ranges.hpp"
#include "cpu/parts/visibility.hpp"
#include "generated/mask_ranges.h"

namespace attune {

inline BoolRange range_of_rows(const ScoreArgs& scores, const ListRows& rows, KeyRange keys) {
  const RowsOfList in = rows_of_list(rows);
  const MaskRowRanges on_rows =
      mask_row_ranges(scores, int_range(scores.batch0 + rows.batch),
                      {scores.head0 + in.first_head, scores.head0 + in.last_head},
                      int_range(scores.kv_head0 + rows.head_kv),
                      {scores.q_position0 + in.first_row, scores.q_position0 + in.last_row});
  return mask_range(scores, on_rows,
                    {scores.kv_position0 + keys.begin, scores.kv_position0 + keys.end - 1});
}

}  // namespace attune
