// SPDX-License-Identifier: Apache-2.0
// Checks the cache operands of calls of op attention_kvcache and append_kv, and the lists of keys
// of op attention_backward.
#pragma once

#include "generator/core/problem/problem.hpp"
#include "runtime/engine/plan.hpp"
#include "runtime/operands/operands.hpp"
#include "templates/shared/append_args.h"
#include "templates/shared/cache_args.h"

namespace attune {

// All functions throw kInvalidArgument. `given` is null if the call has no cache operands.
void check_cache(const Problem& problem, const CacheArgs* given);
// Checks the page strides for the number of pages in the call. The plan's rules do not cover two
// cases: the problem has one page, or the call writes more pages than the problem has.
void check_pages_of_call(const Problem& problem, const Operands& operands);
// Checks that v has the address and strides of k, for problems with v_in_k.
void check_v_in_k(const Problem& problem, const Operands& operands);
// Checks the addresses and strides of a call's lists of keys, for problems with key_indices.
void check_lists(const Problem& problem, const Operands& operands);
// Refuses all lists but those of keys, for ops with key_indices and without a cache.
void check_lists_alone(const CacheArgs* given);
// Checks a call of op append_kv. `of_rows` is null if the call has no append operands.
void check_append(const Problem& problem, const CacheArgs* given, const AppendArgs* of_rows);
// Checks the factors of an 8-bit cache: with kv_factors heads, kernels read one factor for the
// tensor or one per head.
void check_cache_factors(const Problem& problem, const Operands& operands);

// Checks the contents of the lists of a call over a cache. Runs on a CPU check the ids of pages and
// slots. If $ATTUNE_CHECK_WORKSPACE is 1, runs on each device check all lists.

// Waits for the device, then checks all lists. Throws kInvalidArgument with the first begin,
// length, page, slot, place or position that is out of range: kernels would clamp, replace or skip
// it. A place in row_slots may be -1, for a row that is not written; lower places are refused.
void check_cache_lists(const Plan& plan, const Operands& operands);

// Checks the pages and slots of the keys that rows of op attention_kvcache may see, in lists in
// host memory. Throws kInvalidArgument with the first id that the cache does not have; kernels
// would read it as 0. Allocates nothing unless it throws.
void check_host_ids(const Problem& problem, const CacheArgs& cache);

}  // namespace attune
