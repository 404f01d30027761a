// SPDX-License-Identifier: Apache-2.0
// The order of tiles and steps in kernels that do not add to dQ: first to last, and no dS in shared
// memory. The kernel that makes all gradients: one_kernel/tile_order.cuh.
#pragma once

namespace none {

constexpr int kSectionHeads = 0;  // heads whose tiles are taken in turn
constexpr bool kLastRowsFirst = false;
constexpr int kDsSlots = 0;  // slots of dS in shared memory

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
