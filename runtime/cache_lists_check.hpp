// SPDX-License-Identifier: Apache-2.0
// Checks what stands in the lists of a call over a cache, which kernels alone read: ids where the host sees them, and all on the host
// where $ATTUNE_CHECK_WORKSPACE is 1.
#pragma once

#include "runtime/plan.hpp"

namespace attune {

// Waits for the device. Throws kInvalidArgument with the first length, page, slot, place or position that kernels would cut, take for
// another or leave out.
void check_cache_lists(const Plan& plan, const Operands& operands);

// Checks the pages and slots of the keys that rows of op attention_kvcache may see, in lists that stand in the host's memory. Throws
// kInvalidArgument with the first that the cache does not have, which kernels would take for 0. Allocates nothing else.
void check_host_ids(const Problem& problem, const CacheArgs& cache);

}  // namespace attune
