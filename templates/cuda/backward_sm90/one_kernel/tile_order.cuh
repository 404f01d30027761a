// SPDX-License-Identifier: Apache-2.0
// The order of steps in the kernel that makes all gradients, and its slots of dS. Stands ahead of
// the parts that it shares with other kernels, whose order is none/tile_order.cuh.
#pragma once

#include "shared/layouts/backward_sm90_layout.h"
#include "shared/layouts/backward_unordered_layout.h"

namespace attune {

// Tiles that add to dQ in the order of keys begin with the last rows (ordered.cuh).
constexpr bool kLastRowsFirst = kOrdered != 0;
constexpr int kDsSlots = kOrdered != 0 ? kOneKernelDsSlots : kUnorderedDsSlots;

}  // namespace attune
