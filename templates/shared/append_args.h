// SPDX-License-Identifier: Apache-2.0
// Launch arguments of append_kv kernels, after AttentionArgs and CacheArgs, on every target.
// Kernels read all lists on the device at every launch.
//
// | operand      | shape                                                                          |
// |--------------|--------------------------------------------------------------------------------|
// | k_new, v_new | [batch, seqlen_q, num_heads_kv, head_dim]; packed requests: [1, rows of all,   |
// |              | num_heads_kv, head_dim]                                                        |
// | cos, sin     | [1, num_positions, 1, rotated columns / 2], if k is rotated                    |
// | positions    | the position of each row; null: length - rows + i for row i of its request     |
// | row_slots    | the place of each row's key: page * page_size + key, or slot * seqlen_kv       |
// |              | + key; -1: the row is not written. Null: the place follows from the position,  |
// |              | in the pages or the slot of the row's request                                  |
//
// A row is not written into the cache if its position or place does not exist: below 0, beyond
// seqlen_kv, in a page or slot that the cache does not have, or a position without angles. If q is
// rotated, the q of a row without angles becomes 0.
#pragma once

#include "shared/attention_args.h"

namespace attune {

struct AppendArgs {
  OperandView k_new, v_new;
  OperandView cos, sin;
  const void* positions;  // integers of index_bytes
  const void* row_slots;
  long long
      num_rows;       // rows of all requests; 0: batch * seqlen_q, or as in q_begins if it is given
  int num_positions;  // rows of cos and sin
  int index_bytes;    // 4 or 8
};

}  // namespace attune
