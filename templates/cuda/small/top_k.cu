// SPDX-License-Identifier: Apache-2.0
// top_k: for each row of scores, the indices of the `num_tiles` largest, in ascending order, then
// -1; and the number of indices. A row sees the keys that the mask and its length show. Of equal
// scores the lower index is chosen. A key with the score -infinity is never chosen, NaN is above
// all numbers (shared/score_ranks.h). The kernel runs on every CUDA arch.
//
//   kThreads  threads per block, which handles one row
//   kVectors  loads of 16 bytes that a thread has in flight
//
// 1. A sample of the row suggests a floor: a rank that somewhat more keys reach than are chosen.
// 2. One pass over the row moves the keys above the floor to shared memory (top_k_candidates.cuh).
//    Their ranks are counted in bins. The bin that holds the last chosen rank becomes the next
//    interval of bins, until the cut between chosen and other keys is known. Bits in the order of
//    keys then give each chosen key its place in the list.
// 3. If too few or too many keys reach the floor, passes over the row itself find the cut, and one
//    more writes the list (find_cut, write_keys).
//
// | shared memory        | bytes               |
// |----------------------|---------------------|
// | bins, or bits        | 4 * kBins           |
// | candidates           | 8 * kCandidates     |
// | sums of warps, found | 8 * kWarps + 20     |
#include "cuda/small/top_k_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/small/top_k_candidates.cuh"
#include "cuda/small/top_k_parts.cuh"
#include "cuda/small/top_k_rows.cuh"
#include "shared/scale_args.h"
#include "shared/score_ranks.h"

namespace attune {

struct Rule {
  Mask mask = kMask;
  int window_left = -1, window_right = -1;
};

// Writes the row's keys that the cut chooses to the list, in the order of keys. Returns how many
// there are.
__device__ __forceinline__ int write_keys(Shared& shared, const ScoreRow& row, const Cut& cut,
                                          int* list) {
  Before before;
#pragma unroll 1
  for (int tile = 0; tile < row.num_tiles(); ++tile) {
    unsigned scores[kVectors][kPerVector], counts[kVectors];
    row.load_tile(tile, scores);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      counts[v] = 0;
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) counts[v] += cut.count(rank_of(scores[v][i]));
    }
    const unsigned in_tile = sum_before(shared, counts, tile);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) {
        const unsigned rank = rank_of(scores[v][i]);
        if (rank < cut.low) continue;
        const Before at = before.plus(counts[v]);
        counts[v] += cut.count(rank);
        if (cut.is_sure(rank) || at.open < cut.wanted)
          list[at.chosen(cut)] = first_key(tile, v) + i;
      }
    }
    before = before.plus(in_tile);
  }
  return before.chosen(cut);
}

// Writes the list of a row. Returns how many keys there are.
__device__ __forceinline__ int write_list(Shared& shared, const ScoreRow& row, int length,
                                          int* list) {
  constexpr unsigned kAll = kHiddenRank + 1;
  if (row.keys <= length) return write_keys(shared, row, {kAll, kAll, 0}, list);
  const unsigned floor = likely_floor(shared, row, length);
  if (floor != kNoFloor) {
    const int count = gather(shared, row, floor);
    if (count <= kCandidates && (count >= length || floor == kAll))
      return write_candidates(shared, count, row.keys, length, list);
  }
  return write_keys(shared, row, find_cut(shared, row, length, /*few=*/0), list);
}

// Grid: batch entries x rows x heads.
extern "C" __global__ void __launch_bounds__(kThreads)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ ScaleArgs scales) {
  __shared__ Shared shared;
  const unsigned heads = static_cast<unsigned>(args.num_heads_q);
  const unsigned rows = static_cast<unsigned>(args.seqlen_q);
  const int head = static_cast<int>(blockIdx.x % heads);
  const int row = static_cast<int>(blockIdx.x / heads % rows);
  const int batch = static_cast<int>(blockIdx.x / heads / rows);
  if (batch >= args.batch) return;
  const auto first = [&](const OperandView& view) {
    return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
  };
  const ScoreRow scores{static_cast<const char*>(args.q.data) + first(args.q) * kScoreBytes,
                        num_keys_of_row(Rule{}, args, scales.v_scale, batch, head, row)};
  int* list = static_cast<int*>(args.o.data) + first(args.o);
  const int length = args.num_tiles;
  const int size = write_list(shared, scores, length, list);
  for (int i = size + static_cast<int>(threadIdx.x); i < length; i += kThreads) list[i] = -1;
  if (args.lse != nullptr && threadIdx.x == 0)
    reinterpret_cast<int*>(
        args.lse)[batch * args.lse_batch_stride + head * args.lse_head_stride + row] = size;
}

}  // namespace attune
