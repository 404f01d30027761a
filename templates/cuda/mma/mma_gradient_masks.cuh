// SPDX-License-Identifier: Apache-2.0
// The mask program of the mma.sync gradient kernels. It runs for each element of a step before the
// products, so that a warp skips a step in which it sees no element.
#pragma once

#include "cuda/mma/mma_gradient_elements.cuh"
#include "generated/mask_program.h"

namespace attune {

// One bit for each of the thread's elements of a step.
template <int kM, int kN>
class SeenElements {
  static constexpr int kWords = (4 * kN + 31) / 32;
  // Number of groups of 8 columns whose programs run together. It is limited because the values
  // that each program reads take registers.
  static constexpr int kAtOnce = 4;

 public:
  // Finds visible elements. Returns true if the warp sees any.
  template <bool kKeysStay>
  __device__ __forceinline__ bool look(const GradientParts& parts,
                                       const ElementPlace<kKeysStay>& at) {
    const ScoreArgs& args = parts.scores;
    const ElementNames<kKeysStay> name(args, at);
    const int batch = name.batch, head = name.head, kv_head = name.kv_head;
    const MaskHead on_head = mask_head(args, batch, head, kv_head);
    unsigned any = 0;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) seen_[m][word] = 0;
#pragma unroll kAtOnce
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int stay = 16 * m + i / 2 * 8, column = 8 * n + i % 2;
          const int q_idx = name.q_idx(args, stay, column);
          const int kv_idx = name.kv_idx(args, stay, column);
          if (mask_element(args, on_head, mask_row(args, on_head, batch, head, kv_head, q_idx),
                           mask_column(args, on_head, batch, head, kv_head, kv_idx), batch, head,
                           kv_head, q_idx, kv_idx))
            seen_[m][n / 8] |= 1u << (n % 8 * 4 + i);
        }
      }
#pragma unroll
      for (int word = 0; word < kWords; ++word) any |= seen_[m][word];
    }
    return __any_sync(0xFFFFFFFFu, any != 0);
  }

  template <bool kHasDp>
  __device__ __forceinline__ void hide(float (&p)[kM][kN][4], float (&ds)[kM][kN][4]) const {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (seen_[m][n / 8] >> (n % 8 * 4 + i) & 1) continue;
          p[m][n][i] = 0.f;
          if constexpr (kHasDp) ds[m][n][i] = 0.f;
        }
      }
    }
  }

 private:
  unsigned seen_[kM][kWords];
};

}  // namespace attune
