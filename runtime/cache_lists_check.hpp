// SPDX-License-Identifier: Apache-2.0
// What stands in the lists of a call over a cache, which kernels alone read: looked at on the host where $ATTUNE_CHECK_WORKSPACE is 1.
#pragma once

#include "runtime/plan.hpp"

namespace attune {

// Waits for the device. Throws kInvalidArgument with the first length, page, slot, place or position that kernels would cut, take for
// another or leave out.
void check_cache_lists(const Plan& plan, const Operands& operands);

}  // namespace attune
