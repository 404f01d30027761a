// SPDX-License-Identifier: Apache-2.0
// A slice of a tile's O, which one block of a cluster joins from all parts (kv_split.cuh).
#pragma once

#include "shared/layouts/prefill_sm90_splits.h"

#include "cuda/ptx/special_functions.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/sm90_layout.cuh"

namespace attune {

constexpr int kSplitCluster = split_cluster(kKvSplits);
constexpr int kSplitClusters = kKvSplits / kSplitCluster;  // of a tile
constexpr int kSliceChunks = split_slice_chunks(kHeadDimV, kSplitCluster);

// Some chunks of 8 columns of O, in the order of the accumulators, with all of the tile's rows.
struct OutputSlice {
  float o[4 * kSliceChunks];
  RowStats rows;
  int first_chunk;
};

__device__ __forceinline__ bool has_chunk(const OutputSlice& slice, int chunk) {
  return slice.first_chunk + chunk < kHeadDimV / 8;
}

// Adds the values of `kParts` parts, each weighted by exp2(its maximum - the common maximum).
// `load(part, i)` returns value `i` of a part: two maxima, two sums, then the slice's values of O.
// Loads stand before their uses, so that they overlap.
template <int kParts, class Load>
__device__ __forceinline__ void add_parts(const Load& load, OutputSlice* slice) {
  float ends[kParts][4], weights[kParts][2];
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int i = 0; i < 4; ++i) ends[part][i] = load(part, i);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = ends[0][half];
#pragma unroll
    for (int part = 1; part < kParts; ++part) most = fmaxf(most, ends[part][half]);
    slice->rows.max[half] = most;
    slice->rows.sum[half] = 0.f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      weights[part][half] = exp2_approx(ends[part][half] - most);
      slice->rows.sum[half] += weights[part][half] * ends[part][2 + half];
    }
  }
#pragma unroll
  for (int chunk = 0; chunk < kSliceChunks; ++chunk) {
    float values[kParts][4];
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[part][i] = has_chunk(*slice, chunk) ? load(part, 4 + 4 * chunk + i) : 0.f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = 0.f;
#pragma unroll
      for (int part = 0; part < kParts; ++part) sum += weights[part][i / 2] * values[part][i];
      slice->o[4 * chunk + i] = sum;
    }
  }
}

}  // namespace attune
