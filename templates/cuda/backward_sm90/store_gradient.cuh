// SPDX-License-Identifier: Apache-2.0
// Stores a gradient of 64 rows or keys at the end of a tile. All four families use it. A warpgroup
// scales and rounds the gradient into its own shared memory, and TMA stores it from there.
#pragma once

#include "cuda/backward_sm90/add_gradient.cuh"  // where kAccumulate
#include "cuda/backward_sm90/layout.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

// The order of accumulators' rows in most kernels. Products of stored scores have another one.
struct RowsInOrder {
  __device__ __forceinline__ static int place(int row) { return row; }
};

// Returns the address to which stmatrix writes 16 columns of accumulators from `i` on, in panels of
// 64 rows. Lanes 0 to 15 address rows, lanes 16 to 31 the next 8 columns.
template <class Order>
__device__ __forceinline__ unsigned staged(unsigned staging, int i) {
  const int thread = reread_thread_index() % kWarpgroupThreads;  // reread: registers are few
  const int row = Order::place(thread / 32 * 16 + thread % 16);
  const int chunk = i / 4 % 8 + thread % 32 / 16;
  return staging + row * kPanelRowBytes + i / 32 * kWarpgroupRows * kPanelRowBytes +
         ((chunk ^ (row % 8)) << 4);
}

// Writes a gradient, scaled and rounded, to panels of 64 rows in shared memory.
template <Dtype kDtype, class Order = RowsInOrder, int kCount>
__device__ __forceinline__ void stage_gradient(unsigned staging, float factor,
                                               const float (&gradient)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 8) {
    unsigned words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)  // words beyond the last column are not stored
      words[j] = pack<kDtype>(factor * gradient[(i + 2 * j) % kCount],
                              factor * gradient[(i + 2 * j + 1) % kCount]);
    if (i + 8 <= kCount)
      stmatrix_x4(staged<Order>(staging, i), words);
    else
      stmatrix_x2(staged<Order>(staging, i), words[0], words[1]);
  }
  fence_proxy_async();
}

// Stores the panels of kColumns columns. One thread calls it.
template <int kColumns>
__device__ __forceinline__ void store_panels(const TensorMap& map, unsigned staging,
                                             const TensorCoord& at) {
#pragma unroll
  for (int panel = 0; panel * kPanelColumns < kColumns; ++panel)
    tma_store(map, staging + panel * kWarpgroupRows * kPanelRowBytes,
              {panel * kPanelColumns, at.row, at.head, at.batch});
  tma_store_commit();
}

template <Dtype kDtype, class Order = RowsInOrder, int kCount>
__device__ __forceinline__ void store_gradient(const TensorMap& map, unsigned staging,
                                               int warpgroup, TensorCoord at, float factor,
                                               const float (&gradient)[kCount]) {
  if constexpr (kAccumulate) return add_gradient(map, staging, warpgroup, at, factor, gradient);
  named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);  // tile no longer read
  stage_gradient<kDtype, Order>(staging, factor, gradient);
  named_barrier_sync(kBarrierWarpgroup + warpgroup, kWarpgroupThreads);
  if (threadIdx.x % kWarpgroupThreads == 0) store_panels<2 * kCount>(map, staging, at);
}

template <int kCount>
__device__ __forceinline__ void clear(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = 0.f;
}

}  // namespace attune
