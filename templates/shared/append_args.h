// SPDX-License-Identifier: Apache-2.0
// Launch arguments of append_kv kernels, after AttentionArgs and CacheArgs, on every target. All
// lists are read on the device, by every launch anew.
//
// | operand      | shape                                                                          |
// |--------------|--------------------------------------------------------------------------------|
// | k_new, v_new | [batch, seqlen_q, num_heads_kv, head_dim]; of packed requests [1, rows of all, |
// |              | num_heads_kv, head_dim]                                                        |
// | cos, sin     | [1, num_positions, 1, turned columns / 2], where k is turned                   |
// | positions    | of each row, in the order of rows; null: length - rows + i of the request      |
// | row_slots    | of each row the place of its key: page * page_size + key, or slot * seqlen_kv  |
// |              | + key; below 0: the row is not written. Null: by position, in the pages or the |
// |              | slot of its request                                                            |
//
// A row whose position or place is not there (below 0, beyond seqlen_kv, a page or a slot that the
// cache does not have, a position without angles) is not written into the cache. Its q, where q is
// turned, becomes 0 if it has no angles.
#pragma once

#include "shared/attention_args.h"

namespace attune {

struct AppendArgs {
  OperandView k_new, v_new;
  OperandView cos, sin;
  const void* positions;  // integers of index_bytes
  const void* row_slots;
  long long
      num_rows;  // of all requests; 0: batch * seqlen_q, or of packed requests what q_begins says
  int num_positions;  // rows of cos and sin
  int index_bytes;    // 4 or 8
};

}  // namespace attune
