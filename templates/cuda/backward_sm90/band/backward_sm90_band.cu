// SPDX-License-Identifier: Apache-2.0
// Gradients of attention for sm_90a along the narrow band of a window
// (../two_kernels/backward_sm90.cu has the formulas). One kernel makes all of them without a
// workspace. Two warpgroups of a block walk along the band. For each of them one thread loads
// tiles, and one warp computes L2 and delta. How it works: README.md.
#include "cuda/backward_sm90/band/backward_sm90_band_knobs.cuh"

#include "cuda/backward_sm90/band/sums.cuh"
#include "cuda/backward_sm90/band/walk.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

constexpr int kBandThreads = (kBandWalkers + 1) * kWarpgroupThreads;

__device__ __forceinline__ void init_band(unsigned shared) {
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    for (int walker = 0; walker < kBandWalkers; ++walker) {
      const BandShared own(shared, walker);
      for (int i = 0; i < kBandRowSlots; ++i) {
        mbarrier_init(own.barriers + kBandLayout.row_full + 8 * i, 1);
        mbarrier_init(own.barriers + kBandLayout.row_empty + 8 * i, kWarpgroupThreads / 32);
        mbarrier_init(own.barriers + kBandLayout.sums_full + 8 * i, 1);
      }
      for (int i = 0; i < kBandKeySlots; ++i) {
        mbarrier_init(own.barriers + kBandLayout.key_full + 8 * i, 1);
        mbarrier_init(own.barriers + kBandLayout.key_empty + 8 * i, kWarpgroupThreads / 32);
      }
      for (int i = 0; i < kBandSumSlots; ++i) mbarrier_init(own.o_full(i), 1);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
}

// Loads the tiles of a walker's runs, in the order in which the walker takes them.
__device__ __forceinline__ void load_band(const AttentionArgs& args, unsigned shared, int walker,
                                          const BandMaps& maps) {
  const BandShared own(shared, walker);
  const auto rows = own.rows();
  const auto keys = own.keys();
  unsigned row = 0, key = 0;
#pragma unroll 1
  for (BandRuns runs(args, walker); !runs.done();) {
    const BandRun run = runs.take();
#pragma unroll 1
    for (int place = run.first_place(); place < run.end; ++place) {
      if (run.has_row(place)) {
        rows.await_free(row, "rows empty");
        const unsigned full = rows.full(row), tile = rows.tile(row);
        const int first = place * kBandTile;
        mbarrier_arrive_expect_tx(full, 2 * kBandLayout.tile_bytes);
        tma_load(tile, *maps.q, full, {0, first, run.head, run.batch});
        tma_load(tile + kBandLayout.tile_bytes, *maps.dout, full, {0, first, run.head, run.batch});
        ++row;
      }
      if (run.has_keys(place)) {
        keys.await_free(key, "keys empty");
        const unsigned full = keys.full(key), tile = keys.tile(key);
        mbarrier_arrive_expect_tx(full, 2 * kBandLayout.tile_bytes);
        tma_load(tile, *maps.k, full, {0, run.key(place), run.head, run.batch});
        tma_load(tile + kBandLayout.tile_bytes, *maps.v, full,
                 {0, run.key(place), run.head, run.batch});
        ++key;
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(kBandThreads, 1)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ GradientArgs gradients,
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_dq,
                  const __grid_constant__ TensorMap map_dk,
                  const __grid_constant__ TensorMap map_dv, const __grid_constant__ TensorMap map_o,
                  const __grid_constant__ TensorMap map_dout) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  init_band(shared);
  wait_for_prior_grid();
  let_next_grid_start();
  const BandMaps maps{&map_q, &map_k, &map_v, &map_dq, &map_dk, &map_dv, &map_dout};
  const int walker = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (walker < 0) {
    if constexpr (kBandRegisters.moved) register_decrease<kBandRegisters.producer>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= kBandWalkers)
      make_band_sums(args, gradients, map_o, shared, warp - kBandWalkers);
    else if (threadIdx.x % 32 == 0)
      load_band(args, shared, warp, maps);
    return;
  }
  if constexpr (kBandRegisters.moved) register_increase<kBandRegisters.consumer>();
  BandWalker here(args, shared, walker, maps);
#pragma unroll 1
  for (BandRuns runs(args, walker); !runs.done();) here.run(runs.take());
  tma_store_wait();
}

}  // namespace attune
