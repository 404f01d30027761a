// SPDX-License-Identifier: Apache-2.0
// Joins the slices of several clusters that share the keys of a tile (kv_split.cuh). Each
// warpgroup writes its slice to the workspace and takes a ticket. The warpgroup with the last
// ticket adds all slices and resets the ticket to zero. Each thread's values are 128 apart, so that
// every access is coalesced.
#pragma once

#include "cuda/ptx/named_barrier.cuh"
#include "cuda/sm90/output_slice.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

class SliceWorkspace {
 public:
  __device__ __forceinline__ SliceWorkspace(const AttentionArgs& args, const PrefillTile& tile,
                                            int warpgroup, int thread, int rank)
      : ticket_(static_cast<int*>(args.workspace) +
                (tile.number * kWarpgroups + warpgroup) * kSplitCluster + rank) {
    const long long ticket_bytes =
        split_ticket_bytes(args.num_tiles / kKvSplits, kWarpgroups, kSplitCluster);
    const long long first = static_cast<long long>(tile.number) * kKvSplits + rank;
    slices_ = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + ticket_bytes) +
              (first * kWarpgroups + warpgroup) * kFloats + thread;
  }

  __device__ __forceinline__ int* ticket() const { return ticket_; }
  __device__ __forceinline__ float* value(int cluster, int i) const {
    return slices_ + static_cast<long long>(cluster) * kSplitCluster * kWarpgroups * kFloats +
           i * kWarpgroupThreads;
  }

 private:
  static constexpr int kFloats = split_slice_floats(kHeadDimV, kSplitCluster);
  int* ticket_;
  float* slices_;
};

__device__ __forceinline__ bool join_clusters(const AttentionArgs& args, const PrefillTile& tile,
                                              int warpgroup, int thread, int rank,
                                              OutputSlice* slice) {
  const SliceWorkspace workspace(args, tile, warpgroup, thread, rank);
  const int cluster = tile.split / kSplitCluster;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    *workspace.value(cluster, half) = slice->rows.max[half];
    *workspace.value(cluster, 2 + half) = slice->rows.sum[half];
  }
#pragma unroll
  for (int i = 0; i < 4 * kSliceChunks; ++i)
    if (has_chunk(*slice, i / 4)) *workspace.value(cluster, 4 + i) = slice->o[i];
  __threadfence();
  const int barrier = kBarrierWarpgroup + warpgroup;
  named_barrier_sync(barrier, kWarpgroupThreads);
  bool last = false;
  if (thread == 0) {
    last = atomicAdd(workspace.ticket(), 1) == kSplitClusters - 1;
    if (last) *workspace.ticket() = 0;
  }
  if (!named_barrier_any(barrier, kWarpgroupThreads, last)) return false;
  __threadfence();
  add_parts<kSplitClusters>([&](int part, int i) { return __ldcg(workspace.value(part, i)); },
                            slice);
  return true;
}

}  // namespace attune
