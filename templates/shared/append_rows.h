// SPDX-License-Identifier: Apache-2.0
// Finds, for each row of an append_kv call, its request, its position, and the place of its key in
// the cache.
#pragma once

#include "shared/append_args.h"
#include "shared/cache_args.h"
#include "shared/host_device.h"

namespace attune {

// A row of the call. A Rule is a type of compiled-in constants: has_pages, page_rows, has_begins
// and is_turned.
struct AppendRow {
  long long batch, row;  // indices in k_new, v_new, q and o
  long long position;
  long long page;  // or the slot; below 0: the row is not written
  long long key;   // index in the page
  bool is_turned;  // the row is rotated: its position has angles
};

ATTUNE_HOST_DEVICE inline long long listed(const void* list, int index_bytes, long long at) {
  return index_bytes == 8 ? static_cast<const long long*>(list)[at]
                          : static_cast<const int*>(list)[at];
}

// The number of the first row, and the number of rows, below 2^31. Rows before the first request
// and after the last one belong to no request.
struct AppendRows {
  long long first, count;
};
template <class Rule>
ATTUNE_HOST_DEVICE inline AppendRows append_rows(const Rule& rule, const AttentionArgs& args,
                                                 const CacheArgs& cache, const AppendArgs& append) {
  const long long most = static_cast<long long>(args.batch) * args.seqlen_q;
  const bool has_begins = rule.has_begins && cache.q_begins != nullptr;
  const long long first = has_begins && cache.q_begins[0] > 0 ? cache.q_begins[0] : 0;
  long long rows = (append.num_rows > 0 ? append.num_rows : first + most) - first;
  if (has_begins) {
    const long long own = cache.q_begins[args.batch] - first;
    rows = own < rows ? own : rows;
  }
  rows = rows < most ? rows : most;
  return {first, rows > 0 ? rows : 0};
}

// Returns the last request that begins at this row or before it.
ATTUNE_HOST_DEVICE inline int request_of_row(const int* begins, int batch, long long row) {
  int low = 0, high = batch;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (begins[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Sets the page and key of a row that exists. Without row_slots, its request and position must be
// known.
template <class Rule>
ATTUNE_HOST_DEVICE inline void find_place(const Rule& rule, const AttentionArgs& args,
                                          const CacheArgs& cache, const AppendArgs& append,
                                          int number, int request, AppendRow& made) {
  const int page_rows = rule.has_pages ? rule.page_rows : args.seqlen_kv;
  if (page_rows == 0) return;
  if (append.row_slots != nullptr) {
    const long long place = listed(append.row_slots, append.index_bytes, number);
    const unsigned long long places =
        static_cast<unsigned long long>(cache.num_pages) * static_cast<unsigned>(page_rows);
    if (static_cast<unsigned long long>(place) >= places) return;  // below 0, too
    if (rule.has_pages) {
      made.page = place / rule.page_rows;
      made.key = place % rule.page_rows;
    } else {  // below 2^32, see check_append
      made.page = static_cast<unsigned>(place) / static_cast<unsigned>(page_rows);
      made.key = static_cast<unsigned>(place) % static_cast<unsigned>(page_rows);
    }
    return;
  }
  if (made.position < 0 || made.position >= args.seqlen_kv) return;
  const int position = static_cast<int>(made.position);
  if (rule.has_pages) {
    made.page = cache.page_table[request * cache.page_table_stride + position / page_rows];
    made.key = position % page_rows;
  } else {
    made.page = cache.slots != nullptr ? cache.slots[request] : request;
    made.key = position;
  }
  if (made.page >= cache.num_pages) made.page = -1;
}

template <class Rule>
ATTUNE_HOST_DEVICE inline AppendRow append_row(const Rule& rule, const AttentionArgs& args,
                                               const CacheArgs& cache, const AppendArgs& append,
                                               int number) {
  AppendRow made{};
  made.page = -1;
  const bool finds_request = !rule.has_begins || append.row_slots == nullptr ||
                             (rule.is_turned && append.positions == nullptr);
  int request = 0;
  long long first = 0, rows = args.seqlen_q;
  if (!rule.has_begins) {
    request = number / args.seqlen_q;
    made.batch = request;
    made.row = number - request * args.seqlen_q;
  } else {
    made.row = number;
    if (finds_request) {
      request = request_of_row(cache.q_begins, args.batch, number);
      first = cache.q_begins[request];
      rows = cache.q_begins[request + 1] - first;
      rows = rows < args.seqlen_q ? rows : args.seqlen_q;
    }
  }
  const long long row = made.row - first;  // within its request
  if (finds_request && (row < 0 || row >= rows)) return made;
  if (append.positions != nullptr) {
    made.position = listed(append.positions, append.index_bytes, number);
  } else if (finds_request) {
    const int length = cache.kv_lengths != nullptr ? cache.kv_lengths[request] : args.seqlen_kv;
    made.position = length - rows + row;
  }
  made.is_turned = rule.is_turned && made.position >= 0 && made.position < append.num_positions;
  if (made.is_turned || !rule.is_turned)
    find_place(rule, args, cache, append, number, request, made);
  return made;
}

}  // namespace attune
