// SPDX-License-Identifier: Apache-2.0
// Returns the derivative of one element's final score by its score before the score program, for
// the references; see score_of.h.
#pragma once

#include "generated/slope_program.h"

namespace attune {

ATTUNE_SCORE_FUNCTION float slope_of(const ScoreArgs& args, float score, int of_batch, int of_head,
                                     int of_kv_head, int row, int key) {
  const int batch = args.batch0 + of_batch, head = args.head0 + of_head;
  const int kv_head = args.kv_head0 + of_kv_head;
  const int q_idx = args.q_position0 + row, kv_idx = args.kv_position0 + key;
  const SlopeHead on_head = slope_head(args, batch, head, kv_head);
  const SlopeRow on_row = slope_row(args, on_head, batch, head, kv_head, q_idx);
  const SlopeColumn on_column = slope_column(args, on_head, batch, head, kv_head, kv_idx);
  return slope_element(args, on_head, on_row, on_column, score, batch, head, kv_head, q_idx,
                       kv_idx);
}

}  // namespace attune
