// SPDX-License-Identifier: Apache-2.0
// block_map: writes o[batch, row granule, head, key granule], a byte that says if the mask program
// shows all, a part or none of the granule (shared/block_map.h). Kernels with any tile size use the
// map to skip blocks. Rows and keys are positions from 0 on; q_position0 is not added. The compiled
// mask and window have no effect, unless the program names them. It runs on every CUDA arch.
//
//   kWarps    warps per thread block; each takes 32 adjacent granules of keys
//
// Each lane handles one granule. The program's range over the granule
// (generator/score/print/source_text.hpp) decides most granules. Ranges over bands of the granule's
// rows decide most others. For each remaining granule, the whole warp evaluates all elements, so
// the map is exact. It uses no shared memory.
#include "cuda/small/small_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/score_ranges.cuh"  // lanes of a warp have the same rows, each its own keys
#include "shared/capture_range.h"

#include "generated/mask_program.h"
#include "generated/mask_ranges.h"
#include "shared/block_map.h"

namespace attune {

// The granules of a warp: 64 rows by 32 adjacent granules of keys.
struct Strip {
  int batch, head;
  int first_row, last_row;
  int first_granule;
};

// The first and the last key of a granule.
struct GranuleKeys {
  int first, last;
};

__device__ __forceinline__ GranuleKeys keys_of(const AttentionArgs& args, int granule) {
  const int first = granule * kGranuleKeys;
  return {first, min(first + kGranuleKeys, args.seqlen_kv) - 1};
}

// Rows per band. If an edge of the mask crosses a granule, most bands of the granule still lie on
// one side of the edge.
constexpr int kBandRows = 8;
constexpr int kOpen = -1;  // ranges do not decide the granule: evaluate its elements

// Returns the state of the lane's granule (seen whole, seen in part, or 0) by ranges over bands of
// `height` rows, or kOpen. All lanes call it, each with its own keys.
__device__ __forceinline__ int by_ranges(const ScoreArgs& scores, const Strip& strip,
                                         GranuleKeys keys, int height) {
  bool shown = false, hidden = false, open = false;  // some band is shown, hidden or undecided
#pragma unroll 1
  for (int row = strip.first_row; row <= strip.last_row; row += height) {
    const MaskRowRanges on_rows = mask_row_ranges(
        scores, int_range(strip.batch), int_range(strip.head), int_range(strip.head / kGqaRatio),
        {row, min(row + height - 1, strip.last_row)});
    const BoolRange range = mask_range(scores, on_rows, {keys.first, keys.last});
    shown = shown || range.lo;
    hidden = hidden || !range.hi;
    open = open || range.lo != range.hi;
  }
  if (shown && hidden) return kSeenInPart;
  return open ? kOpen : shown ? kSeenWhole : 0;
}

// Returns the state of one granule by its elements. All lanes call it: each has a key, and half of
// the lanes have the even rows. Past the last row or key, lanes read the last one again.
__device__ __forceinline__ int look_at(const ScoreArgs& scores, const Strip& strip,
                                       GranuleKeys keys) {
  constexpr int kRowsAtOnce = 32 / kGranuleKeys, kStepsBetweenVotes = 4;
  const int lane = threadIdx.x % 32;
  const int batch = strip.batch, head = strip.head, kv_head = strip.head / kGqaRatio;
  const int kv_idx = min(keys.first + lane % kGranuleKeys, keys.last);
  const MaskHead on_head = mask_head(scores, batch, head, kv_head);
  const MaskColumn column = mask_column(scores, on_head, batch, head, kv_head, kv_idx);
  bool any = false, all = true;
#pragma unroll 1
  for (int row = strip.first_row; row <= strip.last_row; row += kRowsAtOnce * kStepsBetweenVotes) {
#pragma unroll
    for (int i = 0; i < kStepsBetweenVotes; ++i) {
      const int q_idx = min(row + kRowsAtOnce * i + lane / kGranuleKeys, strip.last_row);
      const MaskRow on_row = mask_row(scores, on_head, batch, head, kv_head, q_idx);
      const bool shown =
          mask_element(scores, on_head, on_row, column, batch, head, kv_head, q_idx, kv_idx);
      any = any || shown;
      all = all && shown;
    }
    if (__any_sync(~0u, any) && !__all_sync(~0u, all)) return kSeenInPart;
  }
  return __all_sync(~0u, all) ? kSeenWhole : 0;
}

__device__ __forceinline__ int find_granule(const ScoreArgs& scores, const AttentionArgs& args,
                                            const Strip& strip, int granules) {
  const int lane = threadIdx.x % 32;
  // Lanes past the last granule take the last granule again.
  const GranuleKeys mine = keys_of(args, min(strip.first_granule + lane, granules - 1));
  const unsigned own =
      granules - strip.first_granule < 32 ? (1u << (granules - strip.first_granule)) - 1 : ~0u;
  int found = kOpen;
  unsigned open = own;
#pragma unroll 1
  for (int height = kGranuleRows; open != 0 && height >= kBandRows;
       height /= kGranuleRows / kBandRows) {
    const int here = by_ranges(scores, strip, mine, height);
    if (found == kOpen) found = here;
    open = __ballot_sync(~0u, found == kOpen) & own;
  }
  while (open != 0) {
    const int which = __ffs(static_cast<int>(open)) - 1;
    open &= open - 1;
    const int here = look_at(scores, strip, keys_of(args, strip.first_granule + which));
    if (lane == which) found = here;
  }
  return found;
}

extern "C" __global__ void __launch_bounds__(kWarps * 32)
    attune_kernel(const __grid_constant__ ScoreArgs scores,
                  const __grid_constant__ AttentionArgs args) {
  const int granules = (args.seqlen_kv + kGranuleKeys - 1) / kGranuleKeys;
  const int strips = (granules + 31) / 32;
  const int row_granules = (args.seqlen_q + kGranuleRows - 1) / kGranuleRows;
  const long long number = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const long long list = number / strips;
  if (list >= static_cast<long long>(row_granules) * args.num_heads_q * args.batch) return;
  const int row = static_cast<int>(list % row_granules);
  const int place = static_cast<int>(list / row_granules);
  const Strip strip{place / args.num_heads_q, place % args.num_heads_q, row * kGranuleRows,
                    min((row + 1) * kGranuleRows, args.seqlen_q) - 1,
                    static_cast<int>(number % strips) * 32};
  const int found = find_granule(scores, args, strip, granules);
  const int granule = strip.first_granule + static_cast<int>(threadIdx.x % 32);
  unsigned char* o = static_cast<unsigned char*>(args.o.data) + strip.batch * args.o.batch_stride +
                     strip.head * args.o.head_stride + row * args.o.row_stride;
  if (granule < granules) o[granule] = static_cast<unsigned char>(found);
}

}  // namespace attune
