// SPDX-License-Identifier: Apache-2.0
// Evaluates the whole score program for one element, for the references. All indices count from the
// call's first batch entry, head, row and key.
#pragma once

#include "generated/score_program.h"

#include "shared/slope_of.h"  // where kSloped, else none/

namespace attune {

ATTUNE_SCORE_FUNCTION float score_of(const ScoreArgs& args, float score, int of_batch, int of_head,
                                     int of_kv_head, int row, int key) {
  const int batch = args.batch0 + of_batch, head = args.head0 + of_head;
  const int kv_head = args.kv_head0 + of_kv_head;
  const int q_idx = args.q_position0 + row, kv_idx = args.kv_position0 + key;
  const ScoreHead on_head = score_head(args, batch, head, kv_head);
  const ScoreRow on_row = score_row(args, on_head, batch, head, kv_head, q_idx);
  const ScoreColumn on_column = score_column(args, on_head, batch, head, kv_head, kv_idx);
  return score_element(args, on_head, on_row, on_column, score, batch, head, kv_head, q_idx,
                       kv_idx);
}

}  // namespace attune
