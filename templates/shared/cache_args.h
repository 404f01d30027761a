// SPDX-License-Identifier: Apache-2.0
// Launch arguments of attention_kvcache kernels, after AttentionArgs, on every target: where each
// request has its keys, and how many. Every launch reads all lists anew, on the device.
//
// | operand    | shape                                                                            |
// |------------|----------------------------------------------------------------------------------|
// | q, o       | [batch, seqlen_q, num_heads_q, head_dim]; of packed requests [1, rows of all,    |
// |            | num_heads_q, head_dim]                                                           |
// | k, v       | [pages, page_size, num_heads_kv, head_dim]; without pages [slots, seqlen_kv,     |
// |            | num_heads_kv, head_dim]                                                          |
// | lse        | [batch, num_heads_q, seqlen_q]; of packed requests [1, num_heads_q, rows of all] |
// | kv_lengths | [batch]; keys of each request, its newest tokens among them; null: seqlen_kv of  |
// |            | all                                                                              |
// | q_begins   | [batch + 1], of packed requests alone: rows q_begins[b] to q_begins[b + 1] are   |
// |            | those of request b                                                               |
// | page_table | [batch, pages of the longest request]; of pages alone. Entries behind a          |
// |            | request's last key are not read                                                  |
// | kv_begins  | [batch + 1], of packed keys alone: as q_begins; k and v are [1, num_pages,       |
// |            | num_heads_kv, head_dim]                                                          |
// | slots      | [batch], without pages alone: the slot of each request; null: its own number     |
//
// A request has at most seqlen_q rows and seqlen_kv keys: kernels cut what says more. A page or
// slot that the cache does not have is read as page or slot 0.
#pragma once

namespace attune {

struct CacheArgs {
  const int* kv_lengths;
  const int* q_begins;
  const int* page_table;
  const int* slots;
  long long page_table_stride;  // entries from one request to the next
  int num_pages;                // of k and v: pages, or slots, or rows of packed keys
  const int* kv_begins;
};

}  // namespace attune
