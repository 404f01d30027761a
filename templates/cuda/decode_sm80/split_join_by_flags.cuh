// SPDX-License-Identifier: Apache-2.0
// Split-KV join by flags: the team of the first part, with which its range ends, joins the parts of
// an item. It polls the words of the other parts until none is zero: each word is its own flag.
// This needs neither a fence nor a counter, which saves two round trips to the L2 cache. The words
// are zero again afterwards.
//
// Ranges are in the reverse order of blocks (decode_items.cuh). So a block waits only for blocks
// with lower numbers, which GPUs start first. It never waits for a block that needs its place on
// the GPU. A block waits after all its work, so no team waits for a team that waits.
#pragma once

#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/ptx/self_validating_words.cuh"

namespace attune {

template <>
class SplitJoin<true> {
 public:
  static constexpr int kAtOnce = 8;  // parts whose loads go out before the first is needed

  __device__ __forceinline__ SplitJoin(const KernelParts&, int*) {}

  static __device__ __forceinline__ void write(float2* to, float2 words) { store_valid(to, words); }

  // True if this team joins all parts. All threads of the team call it after they have written
  // their part. On return the team may reuse its shared memory.
  __device__ __forceinline__ bool joins(const DecodeItem&, const DecodePiece& piece) const {
    sync_team();
    return piece.part == 0;
  }

  // Waits for `count` parts, and loads four values and the statistics (largest score and sum) of
  // each. The addresses are `at(i)` and `stats_at(i)`.
  template <class At, class StatsAt>
  static __device__ __forceinline__ void load(int count, const At& at, const StatsAt& stats_at,
                                              float4 (&values)[kAtOnce], float2 (&stats)[kAtOnce]) {
    const auto is_here = [&](int i) { return is_written(values[i]) && is_written(stats[i]); };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float absent =
          __uint_as_float(i < count ? 0u : kMinusZero);  // no part: counts as written
      values[i] = make_float4(absent, absent, absent, absent);
      stats[i] = make_float2(kLowestMax, absent);
    }
    look_until([&] {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (is_here(i)) continue;
        values[i] = load_words(at(i));
        stats[i] = load_words(stats_at(i));
      }
      bool all = true;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) all = all && is_here(i);
      return all;
    });
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (i < count) clear_words(at(i));
  }

  // Clears the statistics. All threads of the team call it, after a barrier that follows their
  // loads.
  template <class StatsOf>
  static __device__ __forceinline__ void clear_stats(int parts, int rows, const StatsOf& stats_of) {
    for (int i = team_thread(); i < parts * rows; i += kTeamThreads)
      clear_words(stats_of(i / rows) + i % rows);
  }
};

}  // namespace attune
