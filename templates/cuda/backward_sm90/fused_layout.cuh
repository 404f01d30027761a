// SPDX-License-Identifier: Apache-2.0
// Constants of the kernel of backward_sm90 that makes all gradients.
#pragma once

#include "cuda/ptx/wgmma_fence.cuh"
#include "shared/layouts/backward_apart_layout.h"  // where kDqApart
#include "shared/layouts/backward_free_layout.h"   // where kDqFree
#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

#if 1                                   // where kDqFree
constexpr int kDsSlots = kFreeDsSlots;  // where kDqFree
#else                                   // where kDqFree
constexpr int kDsSlots = kFusedDsSlots;
#endif                                  // where kDqFree
constexpr BackwardFusedLayout kFusedLayout = backward_fused_layout(
    {kKeyBlockN, kKeyBlockM, kQSlots, kDoutSlots, kHeadDimQk, kHeadDimV, true, true, kDsSlots});
constexpr int kFusedColumns = backward_fused_columns(kKeyBlockM, kHeadDimQk);  // columns of dQ
constexpr DqHalf kDqHalf = backward_dq_half(kKeyBlockM);  // the half of dQ that a warpgroup makes
constexpr int kFusedConsumers = 2 * kWarpgroupThreads, kFusedWarps = kFusedConsumers / 32;
constexpr int kBarrierK = 4;  // named barrier of all warps that multiply K; lower ids: warpgroups
#if 1                         // where kDqApart
constexpr int kDqWarps = kWarpgroupThreads / 32;                 // that make dQ  // where kDqApart
constexpr int kMultiplying = kFusedWarps + kDqWarps;             // warps  // where kDqApart
constexpr int kDsEmpty = backward_apart_ds_empty(kFusedLayout);  // where kDqApart
#else                                                            // where kDqApart
constexpr int kDqWarps = kFusedWarps, kMultiplying = kFusedWarps;
#endif                                                           // where kDqApart

#if 1                                                            // where kDqFree
constexpr BackwardFreeLayout kFreeLayout =                       // where kDqFree
    backward_free_layout(kFusedLayout, kKeyBlockM, kHeadDimQk);  // where kDqFree
constexpr int kDsEmpty = kFreeLayout.ds_empty;                   // where kDqFree
#endif                                                           // where kDqFree

}  // namespace attune
