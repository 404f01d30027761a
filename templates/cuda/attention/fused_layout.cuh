// SPDX-License-Identifier: Apache-2.0
// Constants of the kernel of backward_sm90 that makes all gradients.
#pragma once

#include "cuda/attention/backward_keys.cuh"

namespace attune {

constexpr BackwardFusedLayout kFusedLayout =
    backward_fused_layout({kKeyBlockN, kKeyBlockM, kQSlots, kDoutSlots, kHeadDimQk, kHeadDimV, true,
                           true, kFusedDsSlots});
constexpr int kFusedColumns = backward_fused_columns(kKeyBlockM, kHeadDimQk);  // of dQ
constexpr bool kFusedByRows = kKeyBlockM > kWarpgroupRows;  // a warpgroup makes half of dQ's rows
constexpr int kFusedConsumers = 2 * kWarpgroupThreads, kFusedWarps = kFusedConsumers / 32;

}  // namespace attune
