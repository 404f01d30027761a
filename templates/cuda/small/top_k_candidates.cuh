// SPDX-License-Identifier: Apache-2.0
// Candidates of top_k: keys above a floor that a sample of the row suggests. One pass over the row
// moves them to shared memory, in no order; the best of them are then written in the order of keys.
#pragma once

#include "cuda/small/top_k_parts.cuh"
#include "cuda/small/top_k_rows.cuh"
#include "shared/score_ranks.h"

namespace attune {

constexpr unsigned kNoFloor = ~0u;

// Returns a rank that probably `length` to kCandidates keys of the row reach; kNoFloor if there is
// none. How many keys of a sample are among the row's best varies by the root of that number; the
// floor leaves three times as much on either side.
__device__ __forceinline__ unsigned likely_floor(Shared& shared, const ScoreRow& row, int length) {
  if (row.keys <= kCandidates) return kHiddenRank + 1;
  const RowSample sample(row);
  const float share = static_cast<float>(sample.keys()) / static_cast<float>(row.keys);
  const float expected = static_cast<float>(length) * share;
  const float wanted = expected + 3 * sqrtf(expected) + 1;
  if (wanted + 3 * sqrtf(wanted) > kCandidates * share) return kNoFloor;
  const int ranks = static_cast<int>(wanted);
  return find_cut(shared, sample, ranks, /*few=*/ranks / 8).low;
}

// Moves the keys whose ranks reach the floor to shared memory, and returns how many there are. If
// there are more than kCandidates, some are left out.
__device__ __forceinline__ int gather(Shared& shared, const ScoreRow& row, unsigned floor) {
  if (threadIdx.x == 0) shared.num_candidates = 0;
  __syncthreads();
  const float least = __uint_as_float(score_of(floor));
#pragma unroll 1
  for (int tile = 0; tile < row.num_tiles(); ++tile) {
    unsigned scores[kVectors][kPerVector];
    row.load_tile(tile, scores);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      unsigned hits = 0;  // a bit for each key
#pragma unroll
      for (int i = 0; i < kPerVector; ++i)
        hits |= __uint_as_float(scores[v][i]) < least ? 0u : 1u << i;  // NaN hits
      if (hits == 0) continue;
      unsigned at = atomicAdd(&shared.num_candidates, static_cast<unsigned>(__popc(hits)));
#pragma unroll
      for (int i = 0; i < kPerVector; ++i)
        if ((hits >> i & 1) != 0 && at < kCandidates)
          shared.candidates[at++] = {rank_of(scores[v][i]), first_key(tile, v) + i};
    }
  }
  __syncthreads();
  return static_cast<int>(shared.num_candidates);
}

// The ranks of candidates, as a Source of find_cut.
struct Candidates {
  const Shared& shared;
  int count;
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
      use(shared.candidates[i].rank);
  }
};

// A bit for each of kWindow adjacent keys of the row, in the place of bins: which are sure, and
// which are open.
constexpr int kWindowWords = kBins / 2, kWindow = 32 * kWindowWords;

__device__ __forceinline__ void mark_candidates(Shared& shared, const Cut& cut, int count,
                                                int first_key) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared.bins[i] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const Candidate own = shared.candidates[i];
    const unsigned place = static_cast<unsigned>(own.key - first_key);
    if (place >= kWindow || own.rank < cut.low) continue;
    atomicOr(&shared.bins[place / 32 + (cut.is_sure(own.rank) ? 0 : kWindowWords)],
             1u << place % 32);
  }
  __syncthreads();
}

// Writes the marked keys of a window to the list; `before` counts those of earlier windows.
__device__ __forceinline__ Before write_window(Shared& shared, const Cut& cut, Before before,
                                               int first_key, int* list) {
  constexpr int kOwn = kWindowWords / kThreads;
  const int own = static_cast<int>(threadIdx.x) * kOwn;
  unsigned counts[1] = {0};
#pragma unroll
  for (int i = own; i < own + kOwn; ++i)
    counts[0] += static_cast<unsigned>(__popc(shared.bins[i])) +
                 (static_cast<unsigned>(__popc(shared.bins[kWindowWords + i])) << 16);
  const unsigned in_window = sum_before(shared, counts, first_key / kWindow);
  Before at = before.plus(counts[0]);
#pragma unroll 1
  for (int i = own; i < own + kOwn; ++i) {
    const unsigned sure = shared.bins[i], open = shared.bins[kWindowWords + i];
    for (unsigned left = sure | open; left != 0; left &= left - 1) {
      const int bit = __ffs(static_cast<int>(left)) - 1;
      const bool is_sure = (sure >> bit & 1) != 0;
      if (is_sure || at.open < cut.wanted) list[at.chosen(cut)] = first_key + 32 * i + bit;
      is_sure ? ++at.sure : ++at.open;
    }
  }
  __syncthreads();
  return before.plus(in_window);
}

// Writes the `length` best of `count` candidates to the list, in the order of keys. Returns how
// many there are.
__device__ __forceinline__ int write_candidates(Shared& shared, int count, int keys, int length,
                                                int* list) {
  const Cut cut = find_cut(shared, Candidates{shared, count}, length, /*few=*/0);
  Before before;
#pragma unroll 1
  for (int first_key = 0; first_key < keys; first_key += kWindow) {
    mark_candidates(shared, cut, count, first_key);
    before = write_window(shared, cut, before, first_key, list);
  }
  return before.chosen(cut);
}

}  // namespace attune
