// SPDX-License-Identifier: Apache-2.0
// The score stage of the mma.sync gradient kernels. It applies the score program between S = Q K^T
// and the softmax, and multiplies dP by the program's derivative.
#pragma once

#include "cuda/mma/mma_gradient_elements.cuh"
#include "cuda/mma/mma_gradient_slopes.cuh"  // where kSloped
#include "cuda/parts/none/features.cuh"
#include "generated/score_program.h"

namespace attune {

// Replaces raw scores by log2(e) * program(q.k * softmax_scale). Multiplies dp by the program's
// slope at q.k * softmax_scale.
template <bool kKeysStay, int kM, int kN>
__device__ __forceinline__ void bend_scores(const GradientParts& parts,
                                            const ElementPlace<kKeysStay>& at,
                                            float (&s)[kM][kN][4], float (&dp)[kM][kN][4]) {
  const ScoreArgs& args = parts.scores;
  const ElementNames<kKeysStay> name(args, at);
  const int batch = name.batch, head = name.head, kv_head = name.kv_head;
  const ScoreHead on_head = score_head(args, batch, head, kv_head);
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int stay = 16 * m + i / 2 * 8, column = 8 * n + i % 2;
        const int q_idx = name.q_idx(args, stay, column), kv_idx = name.kv_idx(args, stay, column);
        const float score = s[m][n][i] * parts.base.softmax_scale;
        if constexpr (kSloped) dp[m][n][i] *= element_slope(args, name, score, q_idx, kv_idx);
        const ScoreRow on_row = score_row(args, on_head, batch, head, kv_head, q_idx);
        const ScoreColumn on_column = score_column(args, on_head, batch, head, kv_head, kv_idx);
        s[m][n][i] = kScoreLog2E * score_element(args, on_head, on_row, on_column, score, batch,
                                                 head, kv_head, q_idx, kv_idx);
      }
    }
  }
}

}  // namespace attune
