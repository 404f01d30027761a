// SPDX-License-Identifier: Apache-2.0
// CacheInputs: what calls of the op attention_kvcache are told of their cache when it is measured and checked. Measured calls have
// requests as long as the problem allows, pages in disorder. Checked calls have requests of all kinds: the longest, random ones, none, a
// single key; packed rows of different numbers; entries of the page table that no key needs are -1.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/core/problem.hpp"
#include "templates/shared/cache_args.h"
#include "tuner/device_memory.hpp"

namespace attune {

// On the host. Empty: a call gives none.
struct CacheLists {
  std::vector<int> kv_lengths, q_begins, page_table, slots, kv_begins;
  int64_t page_table_stride = 0;
};

class CacheInputs {
 public:
  // Of a problem without a cache nothing is made.
  void open(const Device& device, const Problem& problem, uint64_t seed);
  // Null for problems without a cache.
  const CacheArgs* timed() const { return has_cache_ ? &timed_ : nullptr; }
  const CacheArgs* checked() const { return has_cache_ ? &checked_ : nullptr; }
  const CacheLists& checked_lists() const { return lists_; }

 private:
  CacheArgs on_device(const Device& device, const CacheLists& lists);
  const int* copied(const Device& device, const std::vector<int>& list);

  bool has_cache_ = false;
  CacheLists lists_;
  CacheArgs timed_{}, checked_{};
  std::vector<DeviceMemory> memory_;
};

}  // namespace attune
