// SPDX-License-Identifier: Apache-2.0
// The scores of an item's rows: the score program, and the keys that each row sees.
#pragma once

#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/decode_sm80/decode_rings.cuh"
#include "cuda/decode_sm80/head_factors.cuh"  // where kHeadFactors, else none/
#include "cuda/decode_sm80/score_fragments.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/score_of.cuh"  // where kScored, else none/

namespace attune {

constexpr float kLog2E = 1.4426950408889634f;

// Returns the factor that the softmax multiplies scores by; score programs return scores in log2.
__device__ __forceinline__ float score_unit(const KernelParts& parts, const DecodeItem& item) {
  return kIsScored
             ? 1.0f
             : scaled_by_k(parts.scales, item.kv_head, without_unit(parts.base.softmax_scale_log2));
}

class DecodeScores {
 public:
  __device__ __forceinline__ explicit DecodeScores(const DecodeItem& item) : item_(item) {}

  // Finds the keys that row `of_lane` of this lane sees, all if the row does not exist.
  __device__ __forceinline__ void see(int of_lane, int row, bool exists) {
    seen_[of_lane] = decode_keys(DecodeRule{}, item_.request, exists ? item_.token(row) : 0);
    if (!exists) seen_[of_lane] = {0, item_.request.length - 1};
  }

  // Applies the score program, and hides the keys that a row does not see. In most tiles all rows
  // see all keys.
  __device__ __forceinline__ void hide(const KernelParts& parts, KeysAddress listed, int first_key,
                                       float (&scores)[Fragments::kFragments][4]) const {
    const TileKeys keys(listed, first_key + Fragments::first_key());
    if constexpr (kIsScored) apply_program(parts, keys, scores);
    if constexpr (kKeyLists) {
      for_each([&](int n, int i) {
        if (keys.at(Fragments::eight_of(n, i), i) < 0) scores[n][i] = hidden_score();
      });
      return;
    }
    const int last_key = first_key + kKeys - 1;
    bool whole = first_key >= seen_[0].first && first_key >= seen_[1].first &&
                 last_key <= seen_[0].last && last_key <= seen_[1].last;
#pragma unroll
    for (int row = 2; row < Fragments::kRowsOfLane; ++row)
      whole = whole && first_key >= seen_[row].first && last_key <= seen_[row].last;
    if (__all_sync(~0u, whole)) return;
#pragma unroll
    for (int n = 0; n < Fragments::kFragments; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = keys.at(Fragments::eight_of(n, i), i);
        const int row = Fragments::row_of_lane(n, i);
        if (at < seen_[row].first || at > seen_[row].last) scores[n][i] = hidden_score();
      }
    }
  }

 private:
  template <class Take>
  static __device__ __forceinline__ void for_each(const Take& take) {
#pragma unroll
    for (int n = 0; n < Fragments::kFragments; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) take(n, i);
    }
  }

  __device__ __forceinline__ void apply_program(const KernelParts& parts, const TileKeys& keys,
                                                float (&scores)[Fragments::kFragments][4]) const {
    for_each([&](int n, int i) {
      const int row =
          Fragments::row_of(static_cast<int>(threadIdx.x) % 32, Fragments::row_of_lane(n, i));
      const int batch = item_.batch(), head = item_.head(row), kv_head = item_.kv_head;
      const int position = item_.position(row), at = keys.at(Fragments::eight_of(n, i), i);
      float score = without_unit(scores[n][i] * parts.base.softmax_scale);
      score = scaled_by_k(parts.scales, kv_head, score);
      score = score_of(parts.scores, score, batch, head, kv_head, position, at);
      scores[n][i] = score * kLog2E;
    });
  }

  const DecodeItem& item_;
  DecodeKeys seen_[Fragments::kRowsOfLane];
};

}  // namespace attune
