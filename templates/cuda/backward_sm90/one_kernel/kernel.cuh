// SPDX-License-Identifier: Apache-2.0
// The kernel of backward_sm90_one_kernel, and its warps' roles. Blocks add to dQ either in the
// order of keys (ordered.cuh) or in no fixed order (unordered.cuh).
#pragma once

#include "cuda/backward_sm90/one_kernel/dq_warpgroup.cuh"  // where kDqWarpgroup, else none/
#include "cuda/backward_sm90/one_kernel/dynamic_scheduler.cuh"
#include "cuda/backward_sm90/one_kernel/ordered.cuh"    // where kOrdered == 1
#include "cuda/backward_sm90/one_kernel/unordered.cuh"  // where kOrdered == 0
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

struct OrderedRoles;
struct UnorderedRoles;
using Roles = Either<kOrdered != 0, OrderedRoles, UnorderedRoles>::Type;

__device__ __forceinline__ void init_one_kernel_barriers(unsigned shared) {
  for (int i = 0; i < kDsSlots; ++i) {
    mbarrier_init(shared + kOneKernelLayout.ds_full + 8 * i, kOneKernelWarps);
    if constexpr (kHasDqWarpgroup) mbarrier_init(shared + kDsEmpty + 8 * i, kDqWarps);
  }
  Roles::init_dq(shared);
  for (int i = 0; i < kOneKernelTileSlots; ++i) {
    mbarrier_init(shared + kOneKernelLayout.tile_full + 8 * i, 1);
    mbarrier_init(shared + kOneKernelLayout.tile_empty + 8 * i, kTileReaders);
  }
}

extern "C" __global__ void __launch_bounds__(Roles::kThreads, 1)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ DropoutArgs dropout,  // where kDropout
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_dk,
                  const __grid_constant__ TensorMap map_dv,
                  const __grid_constant__ TensorMap map_dout) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  if (threadIdx.x == 0) init_one_kernel_barriers(shared);
  init_barriers(shared, kOneKernelLayout.parts, Roles::kReadersOfK);
  wait_for_prior_grid();
  let_next_grid_start();
  const KeysMaps maps{&map_q, &map_k, &map_v, &map_dout, &map_dk, &map_dv};
  constexpr PrefillSm90Registers kRegisters = Roles::kRegisters;
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if constexpr (kHasDqWarpgroup)
    if (warpgroup == 2) return make_dq(args, shared);
  if (warpgroup >= 0) {
    if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
    Roles::consume(args, KeysDropout(dropout), shared, warpgroup, maps);
    return;
  }
  if constexpr (kRegisters.moved) register_decrease<kRegisters.producer>();
  if (threadIdx.x % 32 != 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp == 0)
    Roles::produce_streams(args, shared, maps);
  else if (warp == 1)
    Roles::produce_keys(args, shared, maps);
  else
    Roles::add_dq(args, shared, maps, warp);
}

}  // namespace attune
