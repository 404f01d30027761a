// SPDX-License-Identifier: Apache-2.0
// Checks the contents of the lists of a call over a cache. Runs on a CPU check the ids of pages and
// slots. If $ATTUNE_CHECK_WORKSPACE is 1, runs on each device check all lists.
#pragma once

#include "runtime/engine/plan.hpp"

namespace attune {

// Waits for the device, then checks all lists. Throws kInvalidArgument with the first begin,
// length, page, slot, place or position that is out of range: kernels would clamp, replace or skip
// it. A place in row_slots may be -1, for a row that is not written; lower places are refused.
void check_cache_lists(const Plan& plan, const Operands& operands);

// Checks the pages and slots of the keys that rows of op attention_kvcache may see, in lists in
// host memory. Throws kInvalidArgument with the first id that the cache does not have; kernels
// would read it as 0. Allocates nothing unless it throws.
void check_host_ids(const Problem& problem, const CacheArgs& cache);

}  // namespace attune
