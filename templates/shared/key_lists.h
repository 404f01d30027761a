// SPDX-License-Identifier: Apache-2.0
// Attention over lists of keys, on every target: on the line of decode_partition.h each row of q is
// a request of its own, whose keys are the entries of its list.
#pragma once

#include "shared/append_rows.h"
#include "shared/key_list_args.h"
#include "shared/layouts/decode_requests.h"

namespace attune {

// Returns the number of rows of all requests. Packed rows are counted from the first request's on.
template <bool kHasBegins>
ATTUNE_HOST_DEVICE inline int num_listed_rows(const AttentionArgs& args, const CacheArgs& cache) {
  const int most = args.batch * args.seqlen_q;
  if constexpr (!kHasBegins) return most;
  return args.batch == 0 ? 0 : clamped(cache.q_begins[args.batch] - cache.q_begins[0], 0, most);
}

// Row `number` of a call: its request, its index there, and its list.
struct ListedRow {
  DecodeRequest whole;  // the row's request
  int request, row;
  int list;   // the number of its list
  int count;  // entries of its list; 0 if the row does not exist

  ATTUNE_HOST_DEVICE constexpr bool exists() const { return row >= 0 && row < whole.rows; }
  ATTUNE_HOST_DEVICE constexpr int position() const { return whole.position(row); }
  // Returns the row as a request whose keys are the entries of its list.
  ATTUNE_HOST_DEVICE constexpr DecodeRequest alone() const {
    return {exists() ? 1 : 0, count, whole.first_row + row, whole.first_key};
  }
};

template <bool kHasBegins, bool kHasKeyBegins>
ATTUNE_HOST_DEVICE inline ListedRow listed_row(const AttentionArgs& args, const CacheArgs& cache,
                                               const KeyListArgs& lists, int number) {
  ListedRow made{};
  if constexpr (kHasBegins) {
    made.list = cache.q_begins[0] + number;
    made.request = request_of_row(cache.q_begins, args.batch, made.list);
  } else {
    made.list = number;
    made.request = number / args.seqlen_q;
  }
  made.whole = decode_request<kHasBegins, kHasKeyBegins>(args, cache, made.request);
  made.row = kHasBegins ? made.list - made.whole.first_row : number % args.seqlen_q;
  made.count = lists.length;
  if (lists.counts != nullptr) made.count = clamped(lists.counts[made.list], 0, lists.length);
  if (!made.exists() || cache.num_pages == 0) made.count = 0;
  return made;
}

// The place of a key: a page, or a slot, and a row in it. The row is negative if there is no key.
struct KeyPlace {
  int page, row;
};

// Returns the place that an entry names. A Rule is a type of compiled-in constants: has_pages,
// page_rows and are_places. `slot` is the request's slot, without pages.
template <class Rule>
ATTUNE_HOST_DEVICE inline KeyPlace listed_place(const Rule& rule, const AttentionArgs& args,
                                                const CacheArgs& cache, const ListedRow& row,
                                                int slot, int entry) {
  KeyPlace none{0, -1};
  if (entry < 0) return none;
  if (rule.are_places) {
    const int rows = rule.has_pages ? rule.page_rows : args.seqlen_kv;
    if (rows == 0 || entry / rows >= cache.num_pages) return none;
    return {entry / rows, entry % rows};
  }
  if (entry >= row.whole.length) return none;
  if (!rule.has_pages) return {slot, row.whole.first_key + entry};
  const int page = cache.page_table[row.request * cache.page_table_stride + entry / rule.page_rows];
  return {page >= 0 && page < cache.num_pages ? page : 0, entry % rule.page_rows};
}

}  // namespace attune
