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

CacheLists lists_of(const Problem& p, bool checked, uint64_t seed) {
  Random random(seed);
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

const int* CacheInputs::copied(const Device& device, const std::vector<int>& list) {
  if (list.empty()) return nullptr;
  const auto bytes = static_cast<int64_t>(list.size() * sizeof(int));
  DeviceMemory memory(device, bytes);
  device.copy_to_device(memory.data(), list.data(), bytes);
  const auto* const data = reinterpret_cast<const int*>(memory.data());
  memory_.push_back(std::move(memory));
  return data;
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
  has_cache_ = describe(problem.op).has_cache;
  if (!has_cache_) return;
  lists_ = lists_of(problem, true, seed);
  checked_ = on_device(device, lists_);
  timed_ = on_device(device, lists_of(problem, false, seed + 1));
  open_places(device, problem, seed + 2);
}

}  // namespace attune
