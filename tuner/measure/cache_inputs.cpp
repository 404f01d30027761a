// SPDX-License-Identifier: Apache-2.0
// Lengths, page tables and other lists of caches for calls; see cache_inputs.hpp.
#include "tuner/measure/cache_inputs.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "generator/core/ops/ops.hpp"
#include "generator/core/problem/op.hpp"

namespace attune {
namespace {

using Random = std::mt19937_64;

int at_most(int64_t most, Random& random) {
  return static_cast<int>(std::uniform_int_distribution<int64_t>(0, most)(random));
}

// Returns the length of a request, by its index: 0 gets the longest, 2 gets 0, 3 gets a single key;
// the others are random.
int checked_length(int64_t request, int64_t longest, Random& random) {
  if (request == 0) return static_cast<int>(longest);
  if (request == 2) return 0;
  if (request == 3) return static_cast<int>(std::min<int64_t>(1, longest));
  return at_most(longest, random);
}

std::vector<int> begins(int64_t batch, int64_t longest, bool checked, Random& random) {
  std::vector<int> list{0};
  for (int64_t request = 0; request < batch; ++request)
    list.push_back(list.back() +
                   (checked && request > 0 ? at_most(longest, random) : static_cast<int>(longest)));
  return list;
}

// Returns the first key of each request, then the end of the last one's room. Leaves up to three
// unused keys after each request's keys, as far as `room` allows.
std::vector<int> packed_keys(const std::vector<int>& lengths, int64_t room, Random& random) {
  constexpr int64_t kMore = 3;
  std::vector<int> list{0};
  int64_t left = room;
  for (const int length : lengths) left -= length;
  for (const int length : lengths) {
    const int more = at_most(std::clamp<int64_t>(left, 0, kMore), random);
    left -= more;
    list.push_back(static_cast<int>(std::min<int64_t>(list.back() + length + more, room)));
  }
  return list;
}

// Lists all pages in random order. If there are fewer pages than `count`, the list repeats them.
// For an op that writes to pages, it continues with -1 ("no page") instead.
std::vector<int> disordered(const Problem& p, int64_t count, Random& random) {
  const int64_t pages = pages_of_cache(p);
  const bool again = !describe(p.op).appends;
  std::vector<int> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int> list;
  for (int64_t i = 0; pages > 0 && i < count; ++i)
    list.push_back(again || i < pages ? order[static_cast<size_t>(i % pages)] : -1);
  return list;
}

// Returns the number of keys that a list of row `row` may name: keys of its request, or places of
// the cache.
int64_t keys_to_list(const Problem& p, const CacheLists& lists, int64_t row) {
  if (p.cache.key_indices == KeyIndices::kPlaces)
    return pages_of_cache(p) * (p.cache.page_size > 0 ? p.cache.page_size : p.seqlen_kv);
  int64_t request = p.seqlen_q > 0 ? row / p.seqlen_q : 0;
  if (p.cache.packed_q) {
    const auto next = std::upper_bound(lists.q_begins.begin(), lists.q_begins.end(), row);
    request = std::min<int64_t>(next - lists.q_begins.begin() - 1, p.batch - 1);
  }
  return lists.keys_of(request);
}

// Appends the list of a row: distinct keys, far apart. Checked lists may have entries without a
// key.
void add_list(int64_t keys, int64_t length, bool checked, Random& random, std::vector<int>* list) {
  constexpr int64_t kStep = 7919;  // a prime
  const int64_t first = at_most(std::max<int64_t>(keys - 1, 0), random);
  for (int64_t i = 0; i < length; ++i) {
    const bool is_none = i >= keys || (checked && at_most(9, random) == 0);
    const int64_t step = keys % kStep == 0 ? 1 : kStep;
    list->push_back(is_none ? -1 : static_cast<int>((first + i * step) % keys));
  }
}

// Makes a list for each row that packed requests may have, and for each head if `by_head`.
void add_key_lists(const Problem& p, bool checked, bool by_head, bool counted, Random& random,
                   CacheLists* lists) {
  const int64_t length = keys_of_row(p, p), heads = by_head ? p.num_heads_kv : 1;
  lists->key_row_stride = length * heads;
  lists->key_head_stride = by_head ? length : 0;
  for (int64_t row = 0; row < p.batch * p.seqlen_q; ++row) {
    const int64_t keys = keys_to_list(p, *lists, row);
    for (int64_t head = 0; head < heads; ++head)
      add_list(keys, length, checked, random, &lists->key_indices);
    if (counted)
      lists->key_counts.push_back(row % 4 == 1   ? 0
                                  : row % 4 == 3 ? at_most(length, random)
                                                 : static_cast<int>(length));
  }
}

// Makes all lists but those of keys.
CacheLists lists_of_requests(const Problem& p, bool checked, Random& random) {
  CacheLists lists;
  for (int64_t request = 0; request < p.batch; ++request)
    lists.kv_lengths.push_back(checked ? checked_length(request, p.seqlen_kv, random)
                                       : static_cast<int>(p.seqlen_kv));
  if (p.cache.packed_q) lists.q_begins = begins(p.batch, p.seqlen_q, checked, random);
  if (p.cache.packed_kv) {
    lists.kv_begins = packed_keys(lists.kv_lengths, pages_of_cache(p), random);
    return lists;
  }
  if (p.cache.page_size == 0) {
    lists.slots = disordered(p, p.batch, random);
    return lists;
  }
  lists.page_table_stride = pages_of_request(p);
  lists.page_table = disordered(p, p.batch * lists.page_table_stride, random);
  for (int64_t request = 0; checked && request < p.batch; ++request) {
    const int length = lists.kv_lengths[static_cast<size_t>(request)];
    const auto row = lists.page_table.begin() + request * lists.page_table_stride;
    std::fill(row + (length + p.cache.page_size - 1) / p.cache.page_size,
              row + lists.page_table_stride, -1);
  }
  return lists;
}

// Without a cache all batch entries have all keys.
CacheLists lists_of(const Problem& p, bool has_cache, bool checked, uint64_t seed) {
  Random random(seed);
  CacheLists lists;
  if (has_cache)
    lists = lists_of_requests(p, checked, random);
  else
    lists.kv_lengths.assign(static_cast<size_t>(p.batch), static_cast<int>(p.seqlen_kv));
  if (p.cache.key_indices != KeyIndices::kNone)
    add_key_lists(p, checked, checked && p.num_heads_kv > 1 && seed % 2 == 0,
                  checked && seed % 3 != 0, random, &lists);
  return lists;
}

// Lists all places of the cache in random order.
std::vector<int> disordered_places(const Problem& p, uint64_t seed) {
  const int64_t of_page = p.cache.page_size > 0 ? p.cache.page_size : p.seqlen_kv;
  std::vector<int> places(static_cast<size_t>(pages_of_cache(p) * of_page));
  std::iota(places.begin(), places.end(), 0);
  Random random(seed);
  std::shuffle(places.begin(), places.end(), random);
  return places;
}

}  // namespace

int64_t CacheLists::keys_of(int64_t request) const {
  const auto index = static_cast<size_t>(request);
  if (kv_begins.empty()) return kv_lengths[index];
  return std::min(kv_lengths[index], kv_begins[index + 1] - kv_begins[index]);
}

std::vector<int> CacheLists::listed_keys(int64_t row, int kv_head) const {
  std::vector<int> keys;
  if (key_row_stride == 0) return keys;
  const int64_t length = key_head_stride > 0 ? key_head_stride : key_row_stride;
  const auto first = key_indices.begin() + row * key_row_stride + kv_head * key_head_stride;
  const auto count = key_counts.empty() ? length : key_counts[static_cast<size_t>(row)];
  std::copy_if(first, first + count, std::back_inserter(keys), [](int key) { return key >= 0; });
  return keys;
}

const int* CacheInputs::copied(const Device& device, const std::vector<int>& list) {
  if (list.empty()) return nullptr;
  const auto bytes = static_cast<int64_t>(list.size() * sizeof(int));
  DeviceMemory memory(device, bytes);
  device.copy_to_device(memory.data(), list.data(), bytes);
  const auto* const data = reinterpret_cast<const int*>(memory.data());
  memory_.push_back(std::move(memory));
  return data;
}

KeyListArgs CacheInputs::keys_on_device(const Device& device, const CacheLists& lists) {
  return {copied(device, lists.key_indices), copied(device, lists.key_counts), lists.key_row_stride,
          lists.key_head_stride, 0};
}

CacheArgs CacheInputs::on_device(const Device& device, const CacheLists& lists) {
  return {copied(device, lists.kv_lengths), copied(device, lists.q_begins),
          copied(device, lists.page_table), copied(device, lists.slots),
          lists.page_table_stride,          0,
          copied(device, lists.kv_begins)};
}

void CacheInputs::open_places(const Device& device, const Problem& p, uint64_t seed) {
  const int64_t rows = p.batch * p.seqlen_q;
  has_places_ = false;
  if (!describe(p.op).appends || p.seqlen_q <= p.seqlen_kv) return;
  std::vector<int> places = disordered_places(p, seed);
  if (static_cast<int64_t>(places.size()) < rows) return;
  places.resize(static_cast<size_t>(rows));
  std::vector<int> positions;
  for (int64_t i = 0; i < rows; ++i) positions.push_back(static_cast<int>(i % p.seqlen_kv));
  places_ = {};
  places_.row_slots = copied(device, places);
  places_.positions = copied(device, positions);
  places_.index_bytes = sizeof(int);
  places_.num_rows = rows;
  has_places_ = true;
  timed_ = {};  // places replace tables
}

void CacheInputs::open(const Device& device, const Problem& problem, uint64_t seed) {
  memory_.clear();
  lists_ = {};
  timed_ = checked_ = {};
  has_lists_ = false;
  has_cache_ = describe(problem.op).has_cache;
  has_lists_ = problem.cache.key_indices != KeyIndices::kNone;
  if (!has_cache_ && !has_lists_) return;
  lists_ = lists_of(problem, has_cache_, true, seed);
  CacheLists timed = lists_of(problem, has_cache_, false, seed + 1);
  checked_keys_ = keys_on_device(device, lists_);
  timed_keys_ = keys_on_device(device, timed);
  if (!has_cache_) return;
  if (problem.cache.key_indices == KeyIndices::kPlaces) {  // places need no other lists of keys
    CacheLists rows;
    rows.q_begins = lists_.q_begins;
    checked_ = on_device(device, rows);
    rows.q_begins = timed.q_begins;
    timed_ = on_device(device, rows);
    return;
  }
  checked_ = on_device(device, lists_);
  timed_ = on_device(device, timed);
  open_places(device, problem, seed + 2);
}

}  // namespace attune
