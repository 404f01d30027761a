// SPDX-License-Identifier: Apache-2.0
// Finds the largest logit of a consumer's rows in prefill_sm90 (parts/max_logits.cuh). The running
// maximum of the softmax does not give it: that one may lag.
#pragma once

#include "cuda/parts/max_logits.cuh"
#include "cuda/sm90/epilogue_rows.cuh"

namespace attune {

class MaxLogits {
 public:
  __device__ __forceinline__ void begin() { largest_[0] = largest_[1] = hidden_score(); }

  // Sees the scores of a step after masks, not yet scaled.
  template <int kCount>
  __device__ __forceinline__ void see(const float (&s)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      largest_[0] = fmaxf(largest_[0], fmaxf(s[i], s[i + 1]));
      largest_[1] = fmaxf(largest_[1], fmaxf(s[i + 2], s[i + 3]));
    }
  }

  // Raises the largest logits of the heads of this thread's rows. Whole warps call it.
  __device__ __forceinline__ void join(const KernelParts& parts, const PrefillTile& tile,
                                       int warpgroup) const {
    const AttentionArgs& args = parts.base;
    const ThreadRows place =
        thread_rows(tile, warpgroup, reread_thread_index() % kWarpgroupThreads);
    if constexpr (kPackHeads == 1) {
      const float first = has_row(args, tile, place, 0) ? largest_[0] : hidden_score();
      const float second = has_row(args, tile, place, 1) ? largest_[1] : hidden_score();
      raise_max_logit_of_warp(parts.scales, tile.head, fmaxf(first, second) * args.softmax_scale);
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float largest = quad_max(largest_[half]) * args.softmax_scale;
        if (threadIdx.x % 4 == 0 && has_row(args, tile, place, half))
          raise_max_logit(parts.scales, place.head + kNextHead * half, largest);
      }
    }
  }

 private:
  float largest_[2];
};

}  // namespace attune
