// SPDX-License-Identifier: Apache-2.0
// CacheInputs: the lists of a cache (lengths, page tables, ...) with which calls of the op
// attention_kvcache are measured and checked. Measured calls have requests as long as the problem
// allows, and pages in random order. Checked calls mix requests: the longest, random lengths, empty
// requests, a single key. They pack different numbers of rows. Page table entries that no key needs
// are -1. Measured appends of more rows than the requests have keys give the place of each row, as
// engines do (row_slots): by lists, most rows would not be written. Lists of keys are full in
// measured calls. In checked calls they have entries that name no key, and random counts, except
// for every third seed.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/core/problem/problem.hpp"
#include "templates/shared/append_args.h"
#include "templates/shared/cache_args.h"
#include "templates/shared/key_list_args.h"
#include "tuner/measure/device_memory.hpp"

namespace attune {

// Lists in host memory. An empty list reaches calls as a null pointer.
struct CacheLists {
  std::vector<int> kv_lengths, q_begins, page_table, slots, kv_begins, key_indices, key_counts;
  int64_t page_table_stride = 0;
  int64_t key_row_stride = 0, key_head_stride = 0;

  // Returns how many keys a request has. Packed keys end where the next request's begin.
  int64_t keys_of(int64_t request) const;
  // Returns the keys that the list of a row names for a head of K, in the order of the list.
  std::vector<int> listed_keys(int64_t row, int kv_head) const;
};

class CacheInputs {
 public:
  // Makes the lists. Does nothing for a problem without a cache and without lists of keys.
  void open(const Device& device, const Problem& problem, uint64_t seed);
  // Returns nullptr for problems without a cache.
  const CacheArgs* timed() const { return has_cache_ ? &timed_ : nullptr; }
  const CacheArgs* checked() const { return has_cache_ ? &checked_ : nullptr; }
  const CacheLists& checked_lists() const { return lists_; }
  // Return nullptr for problems without lists of keys.
  const KeyListArgs* timed_keys() const { return has_lists_ ? &timed_keys_ : nullptr; }
  const KeyListArgs* checked_keys() const { return has_lists_ ? &checked_keys_ : nullptr; }
  // Returns the places of measured appends; nullptr if their lists hold all rows.
  const AppendArgs* timed_places() const { return has_places_ ? &places_ : nullptr; }

 private:
  CacheArgs on_device(const Device& device, const CacheLists& lists);
  const int* copied(const Device& device, const std::vector<int>& list);
  void open_places(const Device& device, const Problem& problem, uint64_t seed);

  KeyListArgs keys_on_device(const Device& device, const CacheLists& lists);

  bool has_cache_ = false, has_places_ = false, has_lists_ = false;
  AppendArgs places_{};
  CacheLists lists_;
  CacheArgs timed_{}, checked_{};
  KeyListArgs timed_keys_{}, checked_keys_{};
  std::vector<DeviceMemory> memory_;
};

}  // namespace attune
