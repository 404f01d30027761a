// SPDX-License-Identifier: Apache-2.0
// Checks of a cache's lists; see cache_check.hpp.
#include "runtime/operands/cache_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"
#include "templates/shared/key_lists.h"

namespace attune {
namespace {

class ListsCheck {
 public:
  ListsCheck(const Plan& plan, const Operands& operands)
      : problem_(plan.problem), device_(*plan.device) {
    if (operands.cache != nullptr) cache_ = *operands.cache;
    if (operands.append != nullptr) append_ = *operands.append;
    if (operands.lists != nullptr) lists_ = *operands.lists;
    if (cache_.num_pages == 0) cache_.num_pages = static_cast<int>(pages_of_cache(problem_));
    appends_ = plan.launch.takes_append;
  }

  void run() {
    device_.synchronize();
    const auto batch = static_cast<size_t>(problem_.batch);
    lengths_ = cache_.kv_lengths == nullptr ? std::vector<int64_t>(batch, problem_.seqlen_kv)
                                            : numbers(cache_.kv_lengths, problem_.batch, 4);
    const bool needs_angles =
        problem_.append.rotary != ScoreTensor::kNone && append_.positions == nullptr;
    // With row_slots, keys may be anywhere, so the room of one request does not limit lengths.
    const int64_t room =
        append_.row_slots == nullptr ? problem_.seqlen_kv : std::numeric_limits<int>::max();
    const int64_t most = needs_angles && append_.num_positions > 0
                             ? std::min<int64_t>(room, append_.num_positions)
                             : room;
    const bool counts = append_.row_slots == nullptr || needs_angles;
    for (size_t i = 0; counts && cache_.kv_lengths != nullptr && i < batch; ++i)
      check("cache.kv_lengths", i, lengths_[i], 0, most, "the number of keys that fit");
    const std::vector<int64_t> q_begins =
        begins("cache.q_begins", cache_.q_begins, problem_.seqlen_q);
    check_keys(begins("cache.kv_begins", cache_.kv_begins,
                      cache_.kv_lengths == nullptr ? problem_.seqlen_kv : cache_.num_pages));
    check_rows(q_begins);
    if (lists_.indices != nullptr) check_listed_keys(q_begins);
    if (append_.row_slots != nullptr) return;
    for (size_t i = 0; cache_.slots != nullptr && i < batch; ++i)
      check("cache.slots", i, numbers(cache_.slots + i, 1, 4)[0], 0, cache_.num_pages - 1,
            "the last slot");
    for (size_t i = 0; cache_.page_table != nullptr && i < batch; ++i)
      check_pages(i, q_begins.empty() ? problem_.seqlen_q : q_begins[i + 1] - q_begins[i]);
  }

 private:
  std::vector<int64_t> numbers(const void* list, int64_t count, int bytes) const {
    std::vector<int64_t> wide(static_cast<size_t>(count));
    if (count == 0) return wide;
    if (bytes == 8) {
      device_.copy_to_host(wide.data(), list, count * 8);
      return wide;
    }
    std::vector<int> narrow(wide.size());
    device_.copy_to_host(narrow.data(), list, count * 4);
    std::copy(narrow.begin(), narrow.end(), wide.begin());
    return wide;
  }

  static void check(const char* name, size_t at, int64_t value, int64_t least, int64_t most,
                    const char* what) {
    if (value >= least && value <= most) return;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}[{}] is {}; must be {} to {}, {} (checked because "
                            "ATTUNE_CHECK_WORKSPACE is 1)",
                            name, at, value, least, most, what));
  }

  std::vector<int64_t> begins(const char* name, const int* list, int64_t most) const {
    if (list == nullptr) return {};
    std::vector<int64_t> found = numbers(list, problem_.batch + 1, 4);
    check(name, 0, found[0], 0, kMaxLength, "the largest number of rows");
    for (size_t i = 1; i < found.size(); ++i)
      check(name, i, found[i], found[i - 1], found[i - 1] + most,
            "the entry before plus the most that a request may have");
    return found;
  }

  // Checks that the keys of each request are inside the packed keys. Needed only if lengths are
  // given: then begins may be further apart than the largest number of keys of a request.
  void check_keys(const std::vector<int64_t>& begins) const {
    for (size_t i = 0; i + 1 < begins.size() && cache_.kv_lengths != nullptr; ++i)
      check("cache.kv_begins", i, begins[i], 0, cache_.num_pages - lengths_[i],
            "so that the last key is in the cache");
  }

  // Checks positions and places of rows, if the call has these lists.
  void check_rows(const std::vector<int64_t>& q_begins) const {
    const int64_t first = q_begins.empty() ? 0 : q_begins[0];
    int64_t rows =
        append_.num_rows > 0 ? append_.num_rows : first + problem_.batch * problem_.seqlen_q;
    if (!q_begins.empty()) rows = std::min(rows, q_begins.back());
    const int bytes = append_.index_bytes == 8 ? 8 : 4;
    const int64_t keys =
        problem_.cache.page_size > 0 ? problem_.cache.page_size : problem_.seqlen_kv;
    const int64_t positions =
        problem_.append.rotary != ScoreTensor::kNone && append_.num_positions > 0
            ? append_.num_positions
            : problem_.seqlen_kv;
    const bool counts =
        problem_.append.rotary != ScoreTensor::kNone || append_.row_slots == nullptr;
    const auto look = [&](const char* name, const void* list, int64_t least, int64_t most,
                          const char* what) {
      const void* const own = static_cast<const char*>(list) + first * bytes;
      const auto found = numbers(own, std::max<int64_t>(0, rows - first), bytes);
      for (size_t i = 0; i < found.size(); ++i)
        check(name, static_cast<size_t>(first) + i, found[i], least, most, what);
    };
    if (append_.positions != nullptr && counts)
      look("append.positions", append_.positions, 0, positions - 1, "the last position");
    if (append_.row_slots != nullptr)
      look("append.row_slots", append_.row_slots, -1, cache_.num_pages * keys - 1,
           "the last place (-1: the row is not written)");
  }

  // Checks the list of each row and head: an entry is -1 or a key that exists, and names no key
  // twice.
  void check_listed_keys(const std::vector<int64_t>& q_begins) const {
    const bool are_places = problem_.cache.key_indices == KeyIndices::kPlaces;
    const int64_t keys =
        problem_.cache.page_size > 0 ? problem_.cache.page_size : problem_.seqlen_kv;
    const int64_t length = keys_of_row(problem_, problem_);
    for (int64_t request = 0; request < problem_.batch; ++request) {
      const auto at = static_cast<size_t>(request);
      const int64_t first = q_begins.empty() ? request * problem_.seqlen_q : q_begins[at];
      const int64_t end = q_begins.empty() ? first + problem_.seqlen_q : q_begins[at + 1];
      const int64_t most = are_places ? cache_.num_pages * keys : lengths_[at];
      for (int64_t row = first; row < end; ++row) {
        int64_t count = length;
        if (lists_.counts != nullptr) {
          count = numbers(lists_.counts + row, 1, 4)[0];
          check("cache.key_counts", static_cast<size_t>(row), count, 0, length, "listed_keys");
        }
        const int heads = lists_.head_stride == 0 ? 1 : problem_.num_heads_kv;
        for (int head = 0; head < heads; ++head) check_list_of_row(row, head, count, most);
      }
    }
  }

  void check_list_of_row(int64_t row, int head, int64_t count, int64_t most) const {
    const std::vector<int64_t> entries =
        numbers(lists_.indices + row * lists_.row_stride + head * lists_.head_stride, count, 4);
    const std::string name = fmt::format("cache.key_indices[{}][{}]", row, head);
    std::map<int64_t, size_t> seen;
    for (size_t i = 0; i < entries.size(); ++i) {
      check(name.c_str(), i, entries[i], -1, most - 1, "the last key (-1: none)");
      const auto [before, is_new] = seen.emplace(entries[i], i);
      if (entries[i] >= 0 && !is_new)
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{}[{}] is {}, as [{}] is; must name each key once (checked "
                                "because ATTUNE_CHECK_WORKSPACE is 1)",
                                name, i, entries[i], before->second));
    }
  }

  // Checks the pages of a request's keys, or of its new rows in op append_kv.
  void check_pages(size_t request, int64_t rows) const {
    const int64_t length = lengths_[request], page = problem_.cache.page_size;
    const int64_t first = appends_ ? std::max<int64_t>(0, length - rows) / page : 0;
    const int64_t end = (length + page - 1) / page;
    if (end <= first) return;
    const int* const row =
        cache_.page_table + static_cast<int64_t>(request) * cache_.page_table_stride + first;
    const std::vector<int64_t> ids = numbers(row, end - first, 4);
    const std::string name = fmt::format("cache.page_table[{}]", request);
    for (size_t i = 0; i < ids.size(); ++i)
      check(name.c_str(), static_cast<size_t>(first) + i, ids[i], 0, cache_.num_pages - 1,
            "the last page");
  }

  const Problem& problem_;
  const Device& device_;
  CacheArgs cache_{};
  AppendArgs append_{};
  KeyListArgs lists_{};
  bool appends_ = false;
  std::vector<int64_t> lengths_;
};

void check_id(const char* name, int64_t at, int64_t id, int64_t count, const char* what) {
  if (id >= 0 && id < count) return;
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}[{}] is {}; must be 0 to {}, the last {}",
                                                       name, at, id, count - 1, what));
}

}  // namespace

void check_cache_lists(const Plan& plan, const Operands& operands) {
  ListsCheck(plan, operands).run();
}

void check_host_ids(const Problem& p, const CacheArgs& cache) {
  const int64_t count = cache.num_pages == 0 ? pages_of_cache(p) : cache.num_pages;
  if (p.cache.packed_kv || (cache.page_table == nullptr && cache.slots == nullptr)) return;
  CacheArgs given = cache;
  given.num_pages = static_cast<int>(count);
  AttentionArgs lengths{};
  lengths.seqlen_q = static_cast<int>(p.seqlen_q);
  lengths.seqlen_kv = static_cast<int>(p.seqlen_kv);
  for (int64_t i = 0; i < p.batch; ++i) {
    const int number = static_cast<int>(i);
    const DecodeRequest made = p.cache.packed_q
                                   ? decode_request<true, false>(lengths, given, number)
                                   : decode_request<false, false>(lengths, given, number);
    // Pages before all windows may already belong to other requests.
    const int64_t first =
        p.window_left < 0 ? 0 : std::max<int64_t>(0, made.position(0) - p.window_left);
    if (made.rows <= 0 || first >= made.length) continue;
    if (p.cache.page_size == 0) {
      check_id("cache.slots", i, cache.slots[i], count, "slot");
      continue;
    }
    const int* const row = cache.page_table + i * cache.page_table_stride;
    for (int64_t page = first / p.cache.page_size; page * p.cache.page_size < made.length; ++page)
      if (row[page] < 0 || row[page] >= count)
        check_id(fmt::format("cache.page_table[{}]", i).c_str(), page, row[page], count, "page");
  }
}

}  // namespace attune
