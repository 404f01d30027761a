// SPDX-License-Identifier: Apache-2.0
// top_k: for each row of scores, the indices of the `num_tiles` largest, in ascending order, then
// -1; and the number of indices. A row sees the keys that the mask and its length show. Of equal
// scores the lower index is chosen. A key with the score -infinity is never chosen, NaN is above
// all numbers (shared/score_ranks.h). The kernel runs on every CUDA arch.
//
//   kThreads  threads per block, which handles one row
//   kVectors  loads of 16 bytes that a thread has in flight
//
// 1. A sample of the row tells where its ranks are. The row is read, and its ranks are counted in
//    bins over that interval. The bin that holds the last chosen rank becomes the next interval,
//    until it holds few ranks, or a single one. Mostly one pass suffices.
// 2. The row is read again: keys above the interval go to the list, and keys in the interval to
//    shared memory, both in order. If the interval is a single rank, the first keys are chosen.
// 3. Otherwise the keys in shared memory are divided in the same way, and merged into the list.
//
// | shared memory        | bytes               |
// |----------------------|---------------------|
// | bins                 | 4 * kBins           |
// | candidates           | 12 * kCandidates    |
// | sums of warps, found | 8 * kWarps + 16     |
#include "cuda/small/top_k_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/small/top_k_parts.cuh"
#include "shared/scale_args.h"
#include "shared/score_ranks.h"

namespace attune {

struct Rule {
  Mask mask = kMask;
  int window_left = -1, window_right = -1;
};

// A row of scores in global memory.
struct ScoreRow {
  const char* data;  // of the row's first score
  int keys;          // that the row sees

  // Loads the ranks of kPerVector keys; those past the row's last key are hidden.
  __device__ __forceinline__ void load(int first, unsigned (&ranks)[kPerVector]) const {
    if (first + kPerVector <= keys) {
      const Vector16 vector =
          *reinterpret_cast<const Vector16*>(data + static_cast<long long>(first) * kScoreBytes);
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) ranks[i] = rank_of(bits_in(vector, i));
    } else {
#pragma unroll
      for (int i = 0; i < kPerVector; ++i)
        ranks[i] = first + i < keys ? rank_of(bits_at(first + i)) : kHiddenRank;
    }
  }
  // Calls use(rank) for each key. Tiles go backwards, so that the next pass finds the first ones in
  // L2.
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
#pragma unroll 1
    for (int tile = last_tile(); tile >= 0; --tile) {
      unsigned ranks[kVectors][kPerVector];
#pragma unroll
      for (int v = 0; v < kVectors; ++v) load(first_key(tile, v), ranks[v]);
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int i = 0; i < kPerVector; ++i) use(ranks[v][i]);
    }
  }
  __device__ __forceinline__ int last_tile() const { return (keys - 1) / kTile; }

 private:
  static __device__ __forceinline__ unsigned bits_of_16(unsigned short bits) {
    if constexpr (kDtypeQ == Dtype::kBf16) return static_cast<unsigned>(bits) << 16;
    return __float_as_uint(fp16_to_float(bits));
  }
  static __device__ __forceinline__ unsigned bits_in(const Vector16& vector, int i) {
    if constexpr (kDtypeQ == Dtype::kFp32) return vector.word[i];
    return bits_of_16(static_cast<unsigned short>(vector.word[i / 2] >> (i % 2 * 16)));
  }
  __device__ __forceinline__ unsigned bits_at(int key) const {
    if constexpr (kDtypeQ == Dtype::kFp32) return reinterpret_cast<const unsigned*>(data)[key];
    return bits_of_16(reinterpret_cast<const unsigned short*>(data)[key]);
  }
};

// Returns the interval from the least to the largest rank of some keys, spread over the row.
__device__ __forceinline__ Interval sample_of(Shared& shared, const ScoreRow& row) {
  const long long vectors = (row.keys + kPerVector - 1) / kPerVector;
  unsigned ranks[kPerVector];
  row.load(static_cast<int>(vectors * threadIdx.x / kThreads) * kPerVector, ranks);
  Interval all{kNanRank, kHiddenRank + 1};
#pragma unroll
  for (int i = 0; i < kPerVector; ++i)
    if (ranks[i] != kHiddenRank) all = {min(all.low, ranks[i]), max(all.high, ranks[i])};
  return hull_of_block(shared, all);
}

// Writes sure keys to the list. Open keys go there too if they are equal, so that the first ones
// are chosen; else they become candidates. Returns how many sure and open keys there are.
__device__ __forceinline__ Before collect(Shared& shared, const ScoreRow& row, const Cut& cut,
                                          int* list) {
  Before before;
#pragma unroll 1
  for (int tile = 0; tile <= row.last_tile(); ++tile) {
    unsigned ranks[kVectors][kPerVector], counts[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) row.load(first_key(tile, v), ranks[v]);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      counts[v] = 0;
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) counts[v] += cut.count(ranks[v][i]);
    }
    const unsigned in_tile = sum_before(shared, counts, tile);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) {
        const unsigned rank = ranks[v][i];
        if (rank < cut.low) continue;
        const Before at = before.plus(counts[v]);
        const int key = first_key(tile, v) + i;
        counts[v] += cut.count(rank);
        if (cut.is_open(rank) && !cut.is_tie)
          shared.candidates[at.open] = {rank, key, at.sure};
        else if (cut.is_sure(rank) || at.open < cut.wanted)
          list[cut.is_tie ? at.chosen(cut) : at.sure] = key;
      }
    }
    before = before.plus(in_tile);
  }
  __syncthreads();
  return before;
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

// Moves the chosen candidates to the front, in the order of keys.
__device__ __forceinline__ void choose_candidates(Shared& shared, const Cut& open, int count) {
  const Interval range{open.low, open.sure - 1};
  const Cut cut = find_cut(shared, Candidates{shared, count}, range, range, open.wanted, /*few=*/0);
  Before before;
#pragma unroll 1
  for (int first = 0, turn = 1; first < count; first += kThreads, ++turn) {
    const int i = first + static_cast<int>(threadIdx.x);
    const Candidate own = i < count ? shared.candidates[i] : Candidate{kHiddenRank, 0, 0};
    unsigned counts[1] = {cut.count(own.rank)};
    const unsigned in_turn = sum_before(shared, counts, turn);  // all have read their candidates
    const Before at = before.plus(counts[0]);
    if (cut.is_sure(own.rank) || (cut.is_open(own.rank) && at.open < cut.wanted))
      shared.candidates[at.chosen(cut)] = own;
    before = before.plus(in_turn);
  }
  __syncthreads();
}

// Merges the first `count` candidates into a list of `sure` keys. Keys move from the end on: no
// thread overwrites a key that another has not read.
__device__ __forceinline__ void merge(const Shared& shared, int count, int sure, int* list) {
#pragma unroll 1
  for (int first = (sure - 1) / kThreads * kThreads; first >= 0; first -= kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    int key = 0, earlier = 0, until = i < sure ? count : 0;
    if (i < sure) key = list[i];
    while (earlier < until) {  // binary search for the candidates before the key
      const int middle = (earlier + until) / 2;
      if (shared.candidates[middle].key < key)
        earlier = middle + 1;
      else
        until = middle;
    }
    __syncthreads();
    if (i < sure) list[i + earlier] = key;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
    list[shared.candidates[i].sure_before + i] = shared.candidates[i].key;
}

// Writes the keys of a row's list. Returns how many there are.
__device__ __forceinline__ int write_keys(Shared& shared, const ScoreRow& row, int length,
                                          int* list) {
  const Interval all{kHiddenRank + 1, kNanRank};
  Cut cut{all.low, all.low, 0, false};
  if (row.keys > length) {
    const Interval sample = sample_of(shared, row);
    const Interval focus = sample.low <= sample.high ? sample : all;
    cut = find_cut(shared, row, all, focus, length, kCandidates);
  }
  const Before found = collect(shared, row, cut, list);
  if (cut.wanted > 0 && !cut.is_tie) {
    choose_candidates(shared, cut, found.open);
    merge(shared, cut.wanted, found.sure, list);
  }
  return found.chosen(cut);
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
  const int size = write_keys(shared, scores, length, list);
  for (int i = size + static_cast<int>(threadIdx.x); i < length; i += kThreads) list[i] = -1;
  if (args.lse != nullptr && threadIdx.x == 0)
    reinterpret_cast<int*>(
        args.lse)[batch * args.lse_batch_stride + head * args.lse_head_stride + row] = size;
}

}  // namespace attune
