// SPDX-License-Identifier: Apache-2.0
// Finds keys in the cache, for kernels that load them by cp.async: keys that a row's list names, or
// the keys of a request. A key may lie in a page, a slot, or among packed keys. A list's entry, the
// page of its key and the key itself are read one after the other, so callers read the first two
// some steps ahead. No function waits for a page id that was just read.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/cache_features.cuh"
#include "shared/key_list_args.h"
#include "shared/layouts/decode_requests.h"

namespace attune {

// Lists: KeyListArgs, or any type in a kernel without lists.
template <class Lists>
class KeyPlaces {
 public:
  // The list of one row: `request` and `keys` are those of the row's request. Without lists, the
  // keys of a request.
  struct List {
    int request, keys, first_key, slot;
    int number, count;  // of the list, and of its entries or keys
    int head;           // of K
  };

  __device__ __forceinline__ KeyPlaces(const KernelParts& parts, const Lists& lists)
      : parts_(parts), lists_(lists) {}

  __device__ __forceinline__ void take(const List& list) {
    list_ = list;
    if constexpr (kKeyLists)
      entries_ = lists_.indices + list.number * lists_.row_stride + list.head * lists_.head_stride;
    if constexpr (kHasPages)
      table_ = parts_.cache.page_table + list.request * parts_.cache.page_table_stride;
  }
  __device__ __forceinline__ int count() const { return list_.count; }
  __device__ __forceinline__ int head() const { return list_.head; }

  // Returns the key that an entry names, or without lists key number `entry`; -1 if there is none.
  __device__ __forceinline__ int key_of(int entry) const {
    if (entry >= list_.count) return -1;
    if constexpr (!kKeyLists) return entry;
    const int key = entries_[entry];
    const int most = kArePlaces ? parts_.cache.num_pages : list_.keys;
    return key < 0 || (kArePlaces ? key / page_rows() : key) >= most ? -1 : key;
  }
  // Returns the page, or the slot, of a key. The id is not checked. kThroughL2: as in list_word.
  template <bool kThroughL2 = false>
  __device__ __forceinline__ int page_of(int key) const {
    if (key < 0) return 0;
    if constexpr (kArePlaces) return key / page_rows();
    if constexpr (kHasPages) return list_word<kThroughL2>(table_ + key / kPageRows);
    return kHasKeyBegins ? 0 : list_.slot;
  }
  // Returns `page`, or 0 if `page` is out of range, so that no load leaves the cache.
  __device__ __forceinline__ int inside(int page) const {
    return static_cast<unsigned>(page) < static_cast<unsigned>(parts_.cache.num_pages) ? page : 0;
  }
  __device__ __forceinline__ int row_in_page(int key) const {
    if (key < 0) return 0;
    if (kHasPages || kArePlaces) return key % page_rows();
    return kHasKeyBegins ? list_.first_key + key : key;
  }

 private:
  __device__ __forceinline__ int page_rows() const {
    return kHasPages ? kPageRows : max(parts_.base.seqlen_kv, 1);
  }

  const KernelParts& parts_;
  const Lists& lists_;
  List list_;
  const int* entries_;  // of the list
  const int* table_;    // the pages of the request
};
using ListedPlaces = KeyPlaces<KeyListArgs>;

}  // namespace attune
