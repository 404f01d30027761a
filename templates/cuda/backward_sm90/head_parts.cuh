// SPDX-License-Identifier: Apache-2.0
// Work tiles that take a part of the heads of Q of a group (split_heads 1), and their sums in the
// workspace. Tiles of whole groups: none/head_parts.cuh. Sums of all parts: join.cuh.
#pragma once

#include "cuda/parts/section_order.cuh"
#include "shared/layouts/backward_head_parts.h"

namespace attune {

constexpr bool kSplitsHeads = true;
constexpr int kSliceColumns = (kGradientK ? kHeadDimQk : 0) + (kGradientV ? kHeadDimV : 0);
constexpr int kSliceOfDv = kGradientK ? kHeadDimQk : 0;  // first column of dV

// The heads of Q of a tile.
struct HeadPart {
  int head_begin;  // counted from the first head of the group
  int heads;
  int slice;  // of the tile's sums
};

// The parts of each group. For the order of tiles, each part counts as a head of K.
struct HeadParts {
  __device__ __forceinline__ HeadParts(const AttentionArgs& args, int blocks)
      : count(backward_head_parts(args.num_tiles, blocks, args.num_heads_kv, args.batch)),
        heads(kGqaRatio / count) {}

  // Returns the head of K of part `place` of a batch entry.
  __device__ __forceinline__ int head(int place) const { return place / count; }
  __device__ __forceinline__ HeadPart part(const AttentionArgs& args, int place, int batch) const {
    const int part = place % count, begin = backward_part_begin(kGqaRatio, count, part);
    return {begin, backward_part_begin(kGqaRatio, count, part + 1) - begin,
            batch * args.num_heads_kv * count + place};
  }

  int count;
  int heads;  // of Q, in the smallest part
};

// Stores a warpgroup's sums of dK or dV of 64 keys, in the order of accumulators. `slices`: of all
// tiles. `first_column`: 0 or kSliceOfDv.
template <int kCount>
__device__ __forceinline__ void store_sums(const AttentionArgs& args, float* slices, int slice,
                                           int first_key, int first_column,
                                           const float (&sums)[kCount]) {
  float* const to = slices +
                    backward_slice_place(slice, first_key / kWarpgroupRows, reread(args.seqlen_kv),
                                         kKeyBlockN, kSliceColumns) +
                    backward_slice_floats(first_column) +
                    reread_thread_index() % kWarpgroupThreads * 4;
#pragma unroll
  for (int i = 0; i < kCount; i += 4)
    *reinterpret_cast<float4*>(to + i * kWarpgroupThreads) =
        make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
}

}  // namespace attune
