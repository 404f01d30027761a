// SPDX-License-Identifier: Apache-2.0
// Checks of cache operands; see cache_check.hpp. The contents of lists are in device memory and not
// checked here: kernels clamp them to the limits of the plan.
#include "runtime/operands/cache_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/core/ops/ops.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/operands/operand_check.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

// Checks the address of a list. `wanted`: the problem may have this list; `needed`: it must have
// it.
void check_list(const char* name, const int* data, bool wanted, bool needed, const char* why) {
  if (data != nullptr && !wanted) refuse(fmt::format("{} is given; must be NULL: {}", name, why));
  if (data == nullptr && needed)
    refuse(
        fmt::format("{} is a null pointer; must be an address aligned to 4 bytes: {}", name, why));
  if (reinterpret_cast<uintptr_t>(data) % sizeof(int) != 0)
    refuse(fmt::format("{} is at address {}; must be aligned to 4 bytes", name,
                       static_cast<const void*>(data)));
}

// Checks the step of a list with `count` parts. No offset in bytes may overflow.
void check_step(const char* name, int64_t step, int64_t least, int64_t count, const char* why) {
  const int64_t most = INT64_MAX / static_cast<int64_t>(sizeof(int)) / std::max<int64_t>(1, count);
  if (step < least || step > most)
    refuse(fmt::format("{} is {}; must be {} to {}{}", name, step, least, most, why));
}

// Returns the number of pages, slots or rows of packed keys in a call's cache. Refuses numbers that
// do not fit into the int in which kernels hold it.
int64_t pages_of_call(const Problem& p, const CacheArgs& cache) {
  const int64_t pages = cache.num_pages > 0 ? cache.num_pages : pages_of_cache(p);
  if (pages > INT32_MAX)
    refuse(
        fmt::format("cache.num_pages is 0 and the problem has up to {} pages, slots or rows; "
                    "must be the number in this call, at most {}",
                    pages, INT32_MAX));
  return pages;
}

// Checks the lists of a call whose rows name places in the cache, not keys of requests.
void check_no_requests(const Problem& p, const CacheArgs& cache) {
  for (const auto& [name, list] : {std::pair{"cache.kv_lengths", cache.kv_lengths},
                                   {"cache.page_table", cache.page_table},
                                   {"cache.slots", cache.slots},
                                   {"cache.kv_begins", cache.kv_begins}})
    check_list(name, list, false, false, "key_indices is places");
  check_list("cache.q_begins", cache.q_begins, p.cache.packed_q, p.cache.packed_q && p.batch > 0,
             p.cache.packed_q ? "packed_q is 1" : "packed_q is 0");
}

}  // namespace

void check_cache(const Problem& p, const CacheArgs* given) {
  const CacheArgs cache = given == nullptr ? CacheArgs{} : *given;
  const int64_t pages = pages_of_call(p, cache);
  const bool has_pages = p.cache.page_size > 0, has_work = p.batch > 0 && p.seqlen_kv > 0;
  if (p.cache.key_indices == KeyIndices::kPlaces) return check_no_requests(p, cache);
  check_list("cache.kv_lengths", cache.kv_lengths, true, false, "");
  check_list("cache.q_begins", cache.q_begins, p.cache.packed_q, p.cache.packed_q && p.batch > 0,
             p.cache.packed_q ? "packed_q is 1" : "packed_q is 0");
  check_list("cache.kv_begins", cache.kv_begins, p.cache.packed_kv,
             p.cache.packed_kv && p.batch > 0,
             p.cache.packed_kv ? "packed_kv is 1" : "packed_kv is 0");
  check_list("cache.page_table", cache.page_table, has_pages, has_pages && has_work,
             has_pages ? "keys are in pages" : "page_size is 0");
  check_list("cache.slots", cache.slots, !has_pages && !p.cache.packed_kv, false,
             has_pages ? "keys are in pages" : "packed_kv is 1");
  if (!has_pages && !p.cache.packed_kv && cache.slots == nullptr && pages < p.batch)
    refuse(
        fmt::format("cache.slots is null and the cache has {} slots for {} requests; give a "
                    "list of slots, or a cache with a slot per request",
                    pages, p.batch));
  const int64_t least = has_pages ? pages_of_request(p) : 0;
  if (has_pages && has_work && p.batch > 1)
    check_step("cache.page_table_stride", cache.page_table_stride, least, p.batch,
               "; the pages of the longest request are the least");
}

void check_pages_of_call(const Problem& p, const Operands& operands) {
  const int pages = operands.cache == nullptr ? 0 : operands.cache->num_pages;
  const int64_t planned = pages_of_cache(p);
  if (pages <= 1 || pages == planned || (planned > 1 && pages < planned)) return;
  Problem called = p;
  called.num_pages = pages;
  const OperandList list = operands_of(called);
  const bool are_written = std::any_of(list.begin(), list.end(), [](const OperandSpec& x) {
    return x.role == Role::kK && x.written;
  });
  if (planned > 1 && !are_written) return;
  check_operands(list, operands);
}

void check_v_in_k(const Problem& p, const Operands& operands) {
  if (!p.cache.v_in_k) return;
  const auto same = [](const OperandView& a, const OperandView& b) {
    return a.data == b.data && a.batch_stride == b.batch_stride && a.row_stride == b.row_stride &&
           a.head_stride == b.head_stride;
  };
  if (!same(operands.k, operands.v))
    refuse(
        "v differs from k in address or strides; must be equal, because v_in_k is 1: values are "
        "the first columns of keys");
}

void check_lists(const Problem& p, const Operands& operands) {
  const KeyListArgs lists = operands.lists == nullptr ? KeyListArgs{} : *operands.lists;
  const bool wanted = p.cache.key_indices != KeyIndices::kNone;
  const bool has_work = p.batch > 0 && p.seqlen_q > 0 && keys_of_row(p, p) > 0;
  const char* const why = wanted ? "the problem has key_indices" : "key_indices is none";
  check_list("cache.key_indices", lists.indices, wanted, wanted && has_work, why);
  check_list("cache.key_counts", lists.counts, wanted, false, why);
  if (!wanted || !has_work) return;
  const int64_t rows = int64_t{p.batch} * p.seqlen_q;
  check_step("cache.key_indices_row_stride", lists.row_stride, 0, rows, "");
  check_step("cache.key_indices_head_stride", lists.head_stride, 0, p.num_heads_kv, "");
}

void check_lists_alone(const CacheArgs* given) {
  const CacheArgs cache = given == nullptr ? CacheArgs{} : *given;
  for (const auto& [name, list] : {std::pair{"cache.kv_lengths", cache.kv_lengths},
                                   {"cache.q_begins", cache.q_begins},
                                   {"cache.page_table", cache.page_table},
                                   {"cache.slots", cache.slots},
                                   {"cache.kv_begins", cache.kv_begins}})
    check_list(name, list, false, false, "the op has no cache, and takes only lists of keys");
}

void check_append(const Problem& p, const CacheArgs* given, const AppendArgs* of_rows) {
  CacheArgs cache = given == nullptr ? CacheArgs{} : *given;
  const AppendArgs append = of_rows == nullptr ? AppendArgs{} : *of_rows;
  if (append.index_bytes != 0 && append.index_bytes != 4 && append.index_bytes != 8)
    refuse(fmt::format("append.index_bytes is {}; must be 4 or 8, or 0 for 4", append.index_bytes));
  const uintptr_t bytes = append.index_bytes == 8 ? 8 : 4;
  for (const auto& [name, list] :
       {std::pair{"append.positions", append.positions}, {"append.row_slots", append.row_slots}})
    if (reinterpret_cast<uintptr_t>(list) % bytes != 0)
      refuse(fmt::format("{} is at address {}; must be aligned to {} bytes", name, list, bytes));
  // Packed rows may have rows before the first request and after the last.
  const bool has_begins = p.cache.packed_q && cache.q_begins != nullptr;
  if (append.num_rows < 0 || (!has_begins && append.num_rows > p.batch * p.seqlen_q))
    refuse(fmt::format("append.num_rows is {}; must be 0 to {}, batch * seqlen_q", append.num_rows,
                       p.batch * p.seqlen_q));
  if (append.num_positions < 0)
    refuse(fmt::format("append.num_positions is {}; must be at least 0, the rows of cos and sin",
                       append.num_positions));
  if (append.row_slots == nullptr) return check_cache(p, &cache);
  const int64_t pages = pages_of_call(p, cache);
  if (p.cache.page_size == 0 && pages * p.seqlen_kv > UINT32_MAX)
    refuse(
        fmt::format("append.row_slots is given and the cache has {} slots of {} keys; must be "
                    "less than 2^32 keys, or a cache of pages",
                    pages, p.seqlen_kv));
  if (p.append.rotary != ScoreTensor::kNone && append.positions == nullptr &&
      cache.kv_lengths == nullptr)
    refuse(
        "append.row_slots is given with rotary, without append.positions and cache.kv_lengths; "
        "give one of them, because angles follow from positions");
  // row_slots gives every place, so kernels do not read page_table and slots.
  if (cache.page_table != nullptr || cache.slots != nullptr)
    refuse(fmt::format("append.row_slots is given with cache.{}; give only one of them",
                       cache.page_table != nullptr ? "page_table" : "slots"));
  // Kernels look for the request of a row only if its angles follow from lengths.
  const bool finds_requests = p.append.rotary != ScoreTensor::kNone && append.positions == nullptr;
  check_list("cache.kv_lengths", cache.kv_lengths, true, false, "");
  check_list("cache.q_begins", cache.q_begins, p.cache.packed_q,
             p.cache.packed_q && p.batch > 0 && finds_requests,
             p.cache.packed_q ? "positions follow from it" : "packed_q is 0");
}

void check_cache_factors(const Problem& p, const Operands& operands) {
  if (p.cache.kv_factors != KvFactors::kHeads && columns_of_factor(p.cache.kv_factors) == 0) return;
  for (const auto& [name, view] :
       {std::pair{"k_scale", &operands.k_scale}, {"v_scale", &operands.v_scale}}) {
    if (!view->data) continue;
    for (const auto& [field, stride] :
         {std::pair{"batch_stride", view->batch_stride}, {"block_stride", view->block_stride}})
      if (stride != 0)
        refuse(fmt::format(
            "{}.{} is {}; must be 0: with kv_factors {} a cache has one factor, or one per "
            "head of k",
            name, field, stride, kv_factors_name(p.cache.kv_factors)));
  }
}

}  // namespace attune
