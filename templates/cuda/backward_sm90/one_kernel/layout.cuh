// SPDX-License-Identifier: Apache-2.0
// Constants of backward_sm90_one_kernel.
#pragma once

#include "cuda/backward_sm90/one_kernel/tile_order.cuh"

#include "cuda/backward_sm90/keys.cuh"
#include "shared/layouts/backward_dq_warpgroup_layout.h"
#include "shared/layouts/backward_sm90_layout.h"
#include "shared/layouts/backward_unordered_layout.h"

namespace attune {

// True if a separate warpgroup makes dQ (dq_warpgroup.cuh).
constexpr bool kHasDqWarpgroup =
    kOrdered != 0 && backward_has_dq_warpgroup(kKeyBlockM, kHeadDimQk, kHeadDimV);
// True if the gradients of a step are made for half of its rows at a time (steps_in_halves.cuh).
constexpr bool kInHalves =
    kOrdered != 0 && backward_one_kernel_in_halves(kKeyBlockM, kHeadDimQk + kHeadDimV);

constexpr BackwardOneKernelLayout kOneKernelLayout = backward_one_kernel_layout(
    {kKeyBlockN, kKeyBlockM, kQSlots, kDoutSlots, kHeadDimQk, kHeadDimV, true, true, kDsSlots});
constexpr BackwardUnorderedLayout kUnorderedLayout =
    backward_unordered_layout(kOneKernelLayout, kKeyBlockM, kHeadDimQk);
// Barriers of slots of dS that readers release (ds.cuh).
constexpr int kDsEmpty =
    kOrdered != 0 ? backward_dq_warpgroup_ds_empty(kOneKernelLayout) : kUnorderedLayout.ds_empty;
constexpr int kOneKernelColumns =
    backward_one_kernel_columns(kKeyBlockM, kHeadDimQk);                 // columns of dQ
constexpr int kDqColumns = backward_dq_columns(kKeyBlockM, kHeadDimQk);  // of both warpgroups
constexpr DqHalf kDqHalf = backward_dq_half(kKeyBlockM);  // the half of dQ that a warpgroup makes

constexpr int kOneKernelConsumers = 2 * kWarpgroupThreads,
              kOneKernelWarps = kOneKernelConsumers / 32;
constexpr int kDqWarps =
    kHasDqWarpgroup ? kWarpgroupThreads / 32 : kOneKernelWarps;                   // that make dQ
constexpr int kMultiplying = kOneKernelWarps + (kHasDqWarpgroup ? kDqWarps : 0);  // warps
constexpr int kBarrierK = 4;  // named barrier of all warps that multiply K; lower ids: warpgroups

template <bool kFirst, class First, class Second>
struct Either {
  using Type = First;
};
template <class First, class Second>
struct Either<false, First, Second> {
  using Type = Second;
};

}  // namespace attune
