// SPDX-License-Identifier: Apache-2.0
// The parts of top_k that work on a block: sums over threads, bins of ranks, and the search for the
// rank of the last chosen key. Used by top_k.cu, which explains the steps.
#pragma once

#include "shared/attention_enums.h"
#include "shared/score_ranks.h"

namespace attune {

constexpr int kBins = 2048, kCandidates = 4096, kWarps = kThreads / 32;
constexpr int kScoreBytes = kDtypeQ == Dtype::kFp32 ? 4 : 2, kPerVector = 16 / kScoreBytes;
constexpr int kTile = kThreads * kVectors * kPerVector;  // keys
static_assert(kThreads % 32 == 0 && kThreads <= 1024 && kBins / 2 % kThreads == 0,
              "threads share the bins equally");
static_assert(kTile < 1 << 16 && kCandidates < 1 << 16, "counts fit 16 bits");

// Ranks from low to high; empty if high < low.
struct Interval {
  unsigned low, high;
  __device__ __forceinline__ bool contains(unsigned rank) const { return rank - low <= high - low; }
};

// Keys with ranks from `sure` on are chosen, and the first `wanted` of those with ranks from `low`
// on.
struct Cut {
  unsigned sure, low;
  int wanted;
  __device__ __forceinline__ bool is_sure(unsigned rank) const { return rank >= sure; }
  __device__ __forceinline__ bool is_open(unsigned rank) const {
    return rank >= low && rank < sure;
  }
  // Returns a word with 1 in the low half for a sure key, 1 in the high half for an open one.
  __device__ __forceinline__ unsigned count(unsigned rank) const {
    return is_sure(rank) ? 1u : is_open(rank) ? 1u << 16 : 0u;
  }
};

// How many sure and open keys come before a key.
struct Before {
  int sure = 0, open = 0;
  __device__ __forceinline__ Before plus(unsigned counts) const {
    return {sure + static_cast<int>(counts & 0xffffu), open + static_cast<int>(counts >> 16)};
  }
  // Returns the number of chosen ones, if the first of the open keys are.
  __device__ __forceinline__ int chosen(const Cut& cut) const {
    return sure + min(open, cut.wanted);
  }
};

// A key that may be chosen.
struct Candidate {
  unsigned rank;
  int key;
};

// The bin that holds the last wanted rank, the ranks in higher bins, in it, and in all bins.
struct Found {
  unsigned bin;
  int above, inside, total;
};

struct Shared {
  unsigned bins[kBins];
  Candidate candidates[kCandidates];
  unsigned num_candidates;
  unsigned sums[2][kWarps];
  Found found;
};

__device__ __forceinline__ int lane_of() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp_of() { return static_cast<int>(threadIdx.x / 32); }

// Returns the first key of a thread's vector. A warp's vectors are adjacent, so that keys are in
// the order of warp, vector and lane.
__device__ __forceinline__ int first_key(int tile, int vector) {
  return tile * kTile + ((warp_of() * kVectors + vector) * 32 + lane_of()) * kPerVector;
}

// Returns the sum over the lanes up to this one.
__device__ __forceinline__ unsigned sum_to_lane(unsigned value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const unsigned other = __shfl_up_sync(~0u, value, step);
    if (lane_of() >= step) value += other;
  }
  return value;
}

// Replaces each of a thread's counts by the sum of all counts before it, in the order of keys.
// Returns the sum over the block. Contains a barrier. Calls that follow each other need another
// parity of `turn`, or a barrier between them.
template <int kCounts>
__device__ __forceinline__ unsigned sum_before(Shared& shared, unsigned (&counts)[kCounts],
                                               int turn) {
  unsigned of_warp = 0;
#pragma unroll
  for (int v = 0; v < kCounts; ++v) {
    const unsigned until = sum_to_lane(counts[v]);
    counts[v] = of_warp + until - counts[v];
    of_warp += __shfl_sync(~0u, until, 31);
  }
  unsigned(&sums)[kWarps] = shared.sums[turn % 2];
  if (lane_of() == 0) sums[warp_of()] = of_warp;
  __syncthreads();
  const unsigned until = sum_to_lane(lane_of() < kWarps ? sums[lane_of()] : 0);
  const unsigned earlier = __shfl_sync(~0u, until, (warp_of() + 31) % 32);
#pragma unroll
  for (int v = 0; v < kCounts; ++v) counts[v] += warp_of() == 0 ? 0 : earlier;
  return __shfl_sync(~0u, until, 31);
}

// Divides the ranks of an interval into bins of 2^shift ranks each.
class Binning {
 public:
  explicit __device__ __forceinline__ Binning(Interval range)
      : range_(range), shift_(max(0, 21 - __clz(range.high - range.low))) {}
  __device__ __forceinline__ unsigned bin_of(unsigned rank) const {
    return (rank - range_.low) >> shift_;
  }
  __device__ __forceinline__ Interval interval_of(unsigned bin) const {
    const unsigned low = range_.low + (bin << shift_);
    const unsigned last = (1u << shift_) - 1;
    return {low, range_.high - low < last ? range_.high : low + last};
  }

 private:
  Interval range_;
  int shift_;
};

// Finds the bin with the `wanted`th rank from the top. All threads call it, after a barrier. If the
// bins hold fewer, only `total` of the result counts.
__device__ __forceinline__ Found find_bin(Shared& shared, int wanted) {
  constexpr int kOwn = kBins / kThreads;
  const int first = kBins - 1 - static_cast<int>(threadIdx.x) * kOwn;
  int own = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own += static_cast<int>(shared.bins[first - i]);
  unsigned before[1] = {static_cast<unsigned>(own)};
  const int total = static_cast<int>(sum_before(shared, before, 0));
  int above = static_cast<int>(before[0]);
  if (above < wanted && above + own >= wanted) {
    int bin = first, inside = static_cast<int>(shared.bins[bin]);
    while (above + inside < wanted) {
      above += inside;
      inside = static_cast<int>(shared.bins[--bin]);
    }
    shared.found = {static_cast<unsigned>(bin), above, inside, total};
  }
  __syncthreads();
  Found found = shared.found;
  found.total = total;
  return found;
}

// Returns the cut that chooses the `wanted` largest ranks of all but hidden keys. A Source has
// each(), which calls a function with each rank of the thread. Open keys have equal ranks, or there
// are at most `few` of them.
template <class Source>
__device__ __forceinline__ Cut find_cut(Shared& shared, const Source& source, int wanted, int few) {
  Interval range{kHiddenRank + 1, kNanRank};
#pragma unroll 1
  for (;;) {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared.bins[i] = 0;
    __syncthreads();
    const Binning binning(range);
    source.each([&](unsigned rank) {
      if (range.contains(rank)) atomicAdd(&shared.bins[binning.bin_of(rank)], 1u);
    });
    __syncthreads();
    const Found found = find_bin(shared, wanted);
    if (found.total <= wanted) return {range.low, range.low, 0};
    wanted -= found.above;
    range = binning.interval_of(found.bin);
    if (found.inside == wanted) return {range.low, range.low, 0};
    if (range.low == range.high || found.inside <= few) return {range.high + 1, range.low, wanted};
  }
}

}  // namespace attune
