// SPDX-License-Identifier: Apache-2.0
// Splits the keys of one tile over kKvSplits blocks; the block that comes last joins their parts.
// Used if there are fewer tiles of queries than multiprocessors.
//
// Each warpgroup writes its O, row maxima and row sums to the workspace, in the order of its
// registers, so that every access is coalesced. Then it takes a ticket. The warpgroup with the last
// ticket adds all parts in the order of the splits, so the result does not depend on which came
// last. It resets the ticket to zero. shared/layouts/prefill_sm90_splits.h shows the layout of the
// workspace.
#pragma once

#include "shared/layouts/prefill_sm90_splits.h"

#include "cuda/ptx/named_barrier.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

constexpr int kPartRegisters = split_part_registers(kHeadDimV);

class SplitWorkspace {
 public:
  __device__ __forceinline__ SplitWorkspace(const AttentionArgs& args, const PrefillTile& tile,
                                            int warpgroup, int thread)
      : ticket_(static_cast<int*>(args.workspace) + tile.number * kWarpgroups + warpgroup) {
    const int tiles = args.num_tiles / kKvSplits;
    const long long ticket_bytes = split_ticket_bytes(tiles, kWarpgroups);
    parts_ = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + ticket_bytes) +
             (static_cast<long long>(tile.number) * kKvSplits * kWarpgroups + warpgroup) *
                 kPartRegisters * kWarpgroupThreads +
             thread;
  }

  __device__ __forceinline__ float* part(int split) const {
    return parts_ +
           static_cast<long long>(split) * kWarpgroups * kPartRegisters * kWarpgroupThreads;
  }
  __device__ __forceinline__ int* ticket() const { return ticket_; }

 private:
  int* ticket_;
  float* parts_;
};

template <int kCount>
__device__ __forceinline__ void store_part(float* part, const float (&o)[kCount],
                                           const RowStats& rows, bool no_keys) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    part[half * kWarpgroupThreads] = no_keys ? kLowestMax : rows.max[half];
    part[(2 + half) * kWarpgroupThreads] = no_keys ? 0.f : rows.sum[half];
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) part[(4 + i) * kWarpgroupThreads] = no_keys ? 0.f : o[i];
}

// Computes the sum of all parts, each weighted by exp2(its maximum - the common maximum).
template <int kCount>
__device__ __forceinline__ void add_parts(const SplitWorkspace& workspace, float (&o)[kCount],
                                          RowStats* rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows->max[half] = __ldcg(workspace.part(0) + half * kWarpgroupThreads);
    rows->sum[half] = 0.f;
    for (int split = 1; split < kKvSplits; ++split)
      rows->max[half] =
          fmaxf(rows->max[half], __ldcg(workspace.part(split) + half * kWarpgroupThreads));
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] = 0.f;
#pragma unroll 1
  for (int split = 0; split < kKvSplits; ++split) {
    const float* part = workspace.part(split);
    float weight[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      weight[half] = exp2_approx(__ldcg(part + half * kWarpgroupThreads) - rows->max[half]);
      rows->sum[half] += weight[half] * __ldcg(part + (2 + half) * kWarpgroupThreads);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      o[i] += weight[i / 2 % 2] * __ldcg(part + (4 + i) * kWarpgroupThreads);
  }
}

// Returns true if this warpgroup came last. Then `o` and `rows` hold the values of the whole tile.
template <int kCount>
__device__ __forceinline__ bool combine_splits(const AttentionArgs& args, const PrefillTile& tile,
                                               int warpgroup, int thread, float (&o)[kCount],
                                               RowStats* rows) {
  const SplitWorkspace workspace(args, tile, warpgroup, thread);
  store_part(workspace.part(tile.split), o, *rows, tile.no_keys);
  __threadfence();
  const int barrier = kBarrierWarpgroup + warpgroup;
  named_barrier_sync(barrier, kWarpgroupThreads);
  bool last = false;
  if (thread == 0) {
    last = atomicAdd(workspace.ticket(), 1) == kKvSplits - 1;
    if (last) *workspace.ticket() = 0;
  }
  if (!named_barrier_any(barrier, kWarpgroupThreads, last)) return false;
  __threadfence();
  add_parts(workspace, o, rows);
  return true;
}

}  // namespace attune
