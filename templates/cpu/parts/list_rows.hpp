// SPDX-License-Identifier: Apache-2.0
// Ranges of rows for which prefill_cpu evaluates a mask program's ranges.
#pragma once

namespace attune {

// Rows [first, first + count) of the list of one K/V head.
struct ListRows {
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
inline RowsOfList rows_of_list(const ListRows& rows) {
  const long long last = rows.first + rows.count - 1;
  const int first_row = static_cast<int>(rows.first / kGqaRatio);
  const int last_row = static_cast<int>(last / kGqaRatio);
  const bool one_row = first_row == last_row;
  const int head = rows.head_kv * kGqaRatio;
  return {first_row, last_row, head + (one_row ? static_cast<int>(rows.first % kGqaRatio) : 0),
          head + (one_row ? static_cast<int>(last % kGqaRatio) : kGqaRatio - 1)};
}

}  // namespace attune
