// SPDX-License-Identifier: Apache-2.0
// The producer warpgroup of cache_sm90, besides the loads of K and V by warps 0 and 2
// (cache_loads.cuh). Warp 1 finds tiles (cache_stream.cuh). Warp 3 copies rows of Q, because a
// request may begin at any row of Q.
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

template <class Lists>
__device__ __forceinline__ void find_tiles(const KernelParts& parts, const Lists& lists,
                                           unsigned shared) {
  if constexpr (kScheduler == kDrawn || kKeyLists)
    wait_for_prior_grid();  // too few registers to look up early and again
  CacheStream(parts, lists, shared).run();
}

// Copies rows of Q, swizzled as TMA would write them. Rows, heads and columns that do not exist
// become zeros.
class CacheQueries {
 public:
  __device__ __forceinline__ CacheQueries(const KernelParts& parts, unsigned shared)
      : parts_(parts), shared_(shared) {}

  __device__ __forceinline__ void run() {
    CacheReader tiles(shared_);
    CacheTile tile;
    while (tiles.next(&tile)) {
#pragma unroll 1
      for (int i = 0; i < kWarpgroups; ++i) {
        mbarrier_wait(shared_ + kLayout.q_empty + 8 * i, tiles.parity() ^ 1, "q_empty");
        copy(tile, i);
      }
      cp_async_commit();
      cp_async_wait<0>();
      fence_proxy_async();  // wgmma reads them
      __syncwarp();
      for (int i = 0; i < kWarpgroups; ++i)
        mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kLayout.q_full + 8 * i);
    }
  }

 private:
  static constexpr int kThreadsOfCopy = 32 * kQueryWarps, kChunksOfRow = kPanelRowBytes / 16;
  static constexpr int kRowsOfPass = kThreadsOfCopy / kChunksOfRow;

  __device__ __forceinline__ void copy(const CacheTile& tile, int warpgroup) const {
    const int thread = static_cast<int>(threadIdx.x) % kThreadsOfCopy,
              chunk = thread % kChunksOfRow;
    const OperandView& q = parts_.base.q;
    const long long batch = kHasBegins ? 0 : tile.place.batch;
    const char* const base = static_cast<const char*>(q.data) + 2 * batch * q.batch_stride;
    const unsigned to = shared_ + kLayout.q + warpgroup * kLayout.q_bytes;
    const int first = tile.place.first_row + warpgroup * kHeadRows;
#pragma unroll 1
    for (int at = thread / kChunksOfRow; at < kQueryRows; at += kRowsOfPass) {
      const int row = first + at % kHeadRows, head = at / kHeadRows;
      const bool exists = row < tile.request.rows && !is_idle(head);
      const long long from = (tile.request.first_row + row) * q.row_stride +
                             (tile.place.head + head) * q.head_stride + chunk * 8;
#pragma unroll
      for (int panel = 0; panel < kLayout.panels_qk; ++panel) {
        const bool inside = exists && panel * kPanelColumns + chunk * 8 < kHeadDimQk;
        cp_async_16<0>(to + (panel * kQueryRows + at) * kPanelRowBytes + ((chunk ^ at % 8) << 4),
                       base + 2 * (inside ? from + panel * kPanelColumns : 0), inside ? 16 : 0);
      }
    }
  }

  const KernelParts& parts_;
  unsigned shared_;
};

}  // namespace attune
