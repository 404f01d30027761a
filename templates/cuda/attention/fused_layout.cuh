// SPDX-License-Identifier: Apache-2.0
// Constants of the kernel of backward_sm90 that makes all gradients.
#pragma once

#include "cuda/ptx/wgmma_fence.cuh"
#include "shared/backward_apart_layout.h"  // where kDqApart
#include "shared/backward_free_layout.h"   // where kDqFree
#include "shared/backward_sm90_layout.h"

namespace attune {

constexpr BackwardFusedLayout kFusedLayout =
    backward_fused_layout({kKeyBlockN, kKeyBlockM, kQSlots, kDoutSlots, kHeadDimQk, kHeadDimV, true,
                           true, kFusedDsSlots});
constexpr int kFusedColumns = backward_fused_columns(kKeyBlockM, kHeadDimQk);  // of dQ
constexpr bool kFusedByRows = kKeyBlockM > kWarpgroupRows;  // a warpgroup makes half of dQ's rows
constexpr int kFusedConsumers = 2 * kWarpgroupThreads, kFusedWarps = kFusedConsumers / 32;
constexpr int kBarrierK = 4;  // named, of all that multiply K; those before are of warpgroups
#if 1                         // where kDqApart
constexpr int kDqWarps = kWarpgroupThreads / 32;                 // that make dQ  // where kDqApart
constexpr int kMultiplying = kFusedWarps + kDqWarps;             // warps  // where kDqApart
constexpr int kDsEmpty = backward_apart_ds_empty(kFusedLayout);  // where kDqApart
#else                                                            // where kDqApart
constexpr int kDqWarps = kFusedWarps, kMultiplying = kFusedWarps;
#endif                                                           // where kDqApart

#if 1                                                           // where kDqFree
constexpr BackwardFreeLayout kFreeLayout =                      // where kDqFree
    backward_free_layout(kFusedLayout, kHeadDimQk, kHeadDimV);  // where kDqFree
#endif                                                          // where kDqFree

}  // namespace attune
