// SPDX-License-Identifier: Apache-2.0
// Launch arguments of attention_kvcache kernels, after AttentionArgs, on every target. They say
// where the keys of each request lie, and how many keys it has. Kernels read all lists on the
// device at every launch.
//
// | operand    | shape                                                                            |
// |------------|----------------------------------------------------------------------------------|
// | q, o       | [batch, seqlen_q, num_heads_q, head_dim]; packed requests: [1, rows of all,      |
// |            | num_heads_q, head_dim]                                                           |
// | k, v       | [pages, page_size, num_heads_kv, head_dim]; without pages [slots, seqlen_kv,     |
// |            | num_heads_kv, head_dim]                                                          |
// | lse        | [batch, num_heads_q, seqlen_q]; packed requests: [1, num_heads_q, rows of all]   |
// | kv_lengths | [batch]; keys of each request, with its newest tokens; null: seqlen_kv for       |
// |            | each request                                                                     |
// | q_begins   | [batch + 1], only for packed requests: rows [q_begins[b], q_begins[b + 1])       |
// |            | belong to request b                                                              |
// | page_table | [batch, pages of the longest request]; only with pages. Entries past a           |
// |            | request's last key are not read                                                  |
// | kv_begins  | [batch + 1], only for packed keys: like q_begins; k and v are [1, num_pages,     |
// |            | num_heads_kv, head_dim]                                                          |
// | slots      | [batch], only without pages: slots of the requests; null: slot b for request b   |
//
// A request has at most seqlen_q rows and seqlen_kv keys: kernels clamp larger numbers. A page or
// slot that the cache does not have is read as page or slot 0.
#pragma once

namespace attune {

struct CacheArgs {
  const int* kv_lengths;
  const int* q_begins;
  const int* page_table;
  const int* slots;
  long long page_table_stride;  // entries from one request to the next
  int num_pages;                // number of pages, slots, or rows of packed keys in k and v
  const int* kv_begins;
};

}  // namespace attune
