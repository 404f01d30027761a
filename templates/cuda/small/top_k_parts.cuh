// SPDX-License-Identifier: Apache-2.0
// The parts of top_k that work on a block: sums over threads, bins of ranks, and the search for the
// interval of ranks that holds the last chosen key. Used by top_k.cu, which explains the steps.
#pragma once

#include "shared/attention_enums.h"
#include "shared/score_ranks.h"

namespace attune {

constexpr int kBins = 2048, kCandidates = 2048, kWarps = kThreads / 32;
constexpr int kScoreBytes = kDtypeQ == Dtype::kFp32 ? 4 : 2, kPerVector = 16 / kScoreBytes;
constexpr int kTile = kThreads * kVectors * kPerVector;  // keys
static_assert(kThreads % 32 == 0 && kThreads <= 1024 && kBins % kThreads == 0,
              "threads share the bins equally");
static_assert(kTile < 1 << 16, "the counts of a tile fit 16 bits");

// Ranks from low to high; empty if high < low.
struct Interval {
  unsigned low, high;
  __device__ __forceinline__ bool contains(unsigned rank) const { return rank - low <= high - low; }
};

// Keys with ranks from `sure` on are chosen, and `wanted` of those with ranks from `low` on.
// is_tie: these have one rank, so that the first of them are chosen.
struct Cut {
  unsigned sure, low;
  int wanted;
  bool is_tie;
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

// A key that may be chosen, and the number of sure keys before it.
struct Candidate {
  unsigned rank;
  int key, sure_before;
};

// The bin that holds the last wanted rank, the ranks in higher bins, in it, and in all bins.
struct Found {
  unsigned bin;
  int above, inside, total;
};

struct Shared {
  unsigned bins[kBins];
  Candidate candidates[kCandidates];
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

__device__ __forceinline__ Interval hull_of_warp(Interval own) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    own.low = min(own.low, __shfl_xor_sync(~0u, own.low, step));
    own.high = max(own.high, __shfl_xor_sync(~0u, own.high, step));
  }
  return own;
}

// Returns the smallest interval that contains those of all threads.
__device__ __forceinline__ Interval hull_of_block(Shared& shared, Interval own) {
  own = hull_of_warp(own);
  if (lane_of() == 0) shared.sums[0][warp_of()] = own.low, shared.sums[1][warp_of()] = own.high;
  __syncthreads();
  const int warp = lane_of() < kWarps ? lane_of() : 0;
  own = hull_of_warp({shared.sums[0][warp], shared.sums[1][warp]});
  __syncthreads();
  return own;
}

// Divides the ranks of an interval into bins: the first holds ranks below `focus`, the last ranks
// above it, and the others 2^shift ranks each.
class Binning {
 public:
  __device__ __forceinline__ Binning(Interval range, Interval focus)
      : range_(range), low_(focus.low), shift_(max(0, 21 - __clz(focus.high - focus.low))) {
    if ((focus.high - focus.low) >> shift_ > kBins - 3) ++shift_;
  }
  __device__ __forceinline__ unsigned bin_of(unsigned rank) const {
    return rank < low_ ? 0 : min(((rank - low_) >> shift_) + 1, kBins - 1u);
  }
  __device__ __forceinline__ Interval interval_of(unsigned bin) const {
    if (bin == 0) return {range_.low, low_ - 1};
    const unsigned long long low = low_ + (static_cast<unsigned long long>(bin - 1) << shift_);
    const unsigned long long high = low + (1ull << shift_) - 1;
    return {static_cast<unsigned>(low),
            bin == kBins - 1 || high > range_.high ? range_.high : static_cast<unsigned>(high)};
  }

 private:
  Interval range_;
  unsigned low_;
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

// Returns the cut that chooses the `wanted` largest ranks of `range`. A Source has each(), which
// calls a function with each rank of the thread. If at most `few` ranks remain, they may stay open.
template <class Source>
__device__ __forceinline__ Cut find_cut(Shared& shared, const Source& source, Interval range,
                                        Interval focus, int wanted, int few) {
#pragma unroll 1
  for (;;) {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) shared.bins[i] = 0;
    __syncthreads();
    const Binning binning(range, focus);
    source.each([&](unsigned rank) {
      if (range.contains(rank)) atomicAdd(&shared.bins[binning.bin_of(rank)], 1u);
    });
    __syncthreads();
    const Found found = find_bin(shared, wanted);
    if (found.total <= wanted) return {range.low, range.low, 0, false};
    wanted -= found.above;
    range = binning.interval_of(found.bin);
    if (found.inside == wanted) return {range.low, range.low, 0, false};
    const bool is_tie = range.low == range.high;
    if (is_tie || found.inside <= few) return {range.high + 1, range.low, wanted, is_tie};
    focus = range;
  }
}

}  // namespace attune
