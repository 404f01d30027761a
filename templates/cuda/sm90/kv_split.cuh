// SPDX-License-Identifier: Apache-2.0
// Splits the keys of one tile over kKvSplits blocks, which join their results. Used if there are
// fewer tiles of queries than multiprocessors.
//
// The blocks of a cluster leave O, row maxima and row sums in their shared memory. Then each reads
// one slice of columns from all of them, so the join takes as long for 8 blocks as for 2. Clusters
// that share a tile pass their slices through the workspace (slice_tickets.cuh). All sums are in
// the order of the splits, so results do not depend on which block came last.
// shared/layouts/prefill_sm90_splits.h has the layouts.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/sm90/consumer_stages.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/output_slice.cuh"
#include "cuda/sm90/slice_tickets.cuh"
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

static_assert(kWarpgroups * split_part_floats(kHeadDimV) * 4 <= kLayout.q_full,
              "the parts of O take the place of Q, K and V");

// Addresses of a thread's values of a part: value `i` is at `i` rows of 128 threads.
constexpr int kPartStep = kWarpgroupThreads * 4;

template <int kCount>
__device__ __forceinline__ void leave_part(unsigned part, const float (&o)[kCount],
                                           const RowStats& rows, bool no_keys) {
  const auto store = [&](int i, float value) {
    store_shared_word(part + i * kPartStep, __float_as_int(value));
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    store(half, no_keys ? kLowestMax : rows.max[half]);
    store(2 + half, no_keys ? 0.f : rows.sum[half]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) store(4 + i, no_keys ? 0.f : o[i]);
}

// Joins the parts of the tile, and arrives at the cluster's barrier. Returns true if `slice` holds
// values of the whole tile; otherwise another cluster stores them. Called by all threads of all
// consumers, when no warp needs Q, K and V any more.
template <int kCount>
__device__ __forceinline__ bool join_splits(const AttentionArgs& args, const PrefillTile& tile,
                                            unsigned shared, int warpgroup, int thread,
                                            const float (&o)[kCount], const RowStats& rows,
                                            OutputSlice* slice) {
  named_barrier_sync(kBarrierConsumers, kConsumers * kWarpgroupThreads);
  const unsigned part = shared + (warpgroup * split_part_floats(kHeadDimV) + thread) * 4;
  leave_part(part, o, rows, tile.no_keys);
  cluster_arrive();
  cluster_wait();
  const int rank = tile.split % kSplitCluster;
  slice->first_chunk = rank * kSliceChunks;
  const unsigned first = part + 4 * slice->first_chunk * kPartStep;
  add_parts<kSplitCluster>(
      [&](int split, int i) {
        return load_cluster_float(cluster_address(i < 4 ? part : first, split) + i * kPartStep);
      },
      slice);
  cluster_arrive();
  if constexpr (kSplitClusters > 1)
    return join_clusters(args, tile, warpgroup, thread, rank, slice);
  return true;
}

// Rounds the slice to 16 bits and stores it.
__device__ __forceinline__ void store_slice(const AttentionArgs& args, const PrefillTile& tile,
                                            ThreadRows place, const OutputSlice& slice) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long at = tile.batch * args.o.batch_stride +
                         (place.row + kNextRow * half) * args.o.row_stride +
                         (place.head + kNextHead * half) * args.o.head_stride;
    unsigned* out = reinterpret_cast<unsigned*>(static_cast<unsigned short*>(args.o.data) + at) +
                    4 * slice.first_chunk + threadIdx.x % 4;
    if constexpr (kVSlices > 1) out += tile.v_column / 2;
    if (!has_row(args, tile, place, half)) continue;
#pragma unroll
    for (int chunk = 0; chunk < kSliceChunks; ++chunk)
      if (has_chunk(slice, chunk))
        out[4 * chunk] =
            pack<kDtypeO>(slice.o[4 * chunk + 2 * half], slice.o[4 * chunk + 2 * half + 1]);
  }
}

// Ends a tile whose keys several blocks share: each stores a slice of the columns of O.
template <class Consumer, int kCount>
__device__ __forceinline__ void join_tile(const KernelParts& args, unsigned shared, int warpgroup,
                                          const PrefillTile& tile, ThreadRows place,
                                          const float (&o)[kCount], const RowStats& rows,
                                          const Consumer& consumer) {
  OutputSlice slice;
  const int thread = threadIdx.x % kWarpgroupThreads;
  if (join_splits(args, tile, shared, warpgroup, thread, o, rows, &slice)) {
    RowEnds ends = consumer.ends(slice.rows);
    scale_kept(args, &ends);
    join_sinks(args.scores, place, &ends);
    if (slice.first_chunk == 0) store_lse(args, tile, place, ends);
    normalise(slice.o, ends);
    store_slice(args, tile, place, slice);
  }
  cluster_wait();  // a block's shared memory lives until all have read it
}

}  // namespace attune
