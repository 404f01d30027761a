// SPDX-License-Identifier: Apache-2.0
// Applies the factors of Q, K and V in the softmax of prefill_sm90_fp8. They are not multiplied
// element by element where that can be avoided:
//
//   Q, K        applied in the factor of a step's scores (softmax_scale * log2(e) * q * k). If a
//               step covers several blocks of K, scores are multiplied by their block's factor
//               first
//   V, heads    one factor per head, applied in 1 / row sum, at the end
//   V, blocks   block j's probabilities are multiplied by r_j = v_j / v_max (log2 r_j in the
//               exponent). The row sum divides r_j out again, and v_max, the largest factor that
//               the row sees, goes into 1 / row sum. The maximum is taken with r_j included, so
//               that P is precise where O needs it. r_j is raised to at least 2^-40: a key's factor
//               is off by at most that share of v_max
//
// Factors that are 0, negative or not finite would turn masked scores (-inf) into NaN. They are
// multiplied into the scores before the mask instead, and count as 1 afterwards.
#pragma once

#include "shared/layouts/prefill_sm90_fp8_layout.h"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/prefill_sm90_fp8/head_factors.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/wgmma_products.cuh"

namespace attune {

constexpr bool kBlockFactors = kScaleBlockKv > 0;

// The columns of a step that share one factor of K and V, and the number of such groups in a step.
constexpr int kGroupColumns = columns_of_factor(kBlockN, kScaleBlockKv);
constexpr int kGroups = kBlockN / kGroupColumns;
static_assert(kGroupColumns % 16 == 0, "scale_block_kv is a multiple of 16");
static_assert(kScaleBlockQ % kWarpgroupRows == 0, "scale_block_q is a multiple of 64");

constexpr float kLeastRatioLog2 = -40.f;

using GroupScores = float[kGroupColumns / 2];

__device__ __forceinline__ GroupScores& group_scores(Scores& s, int group) {
  return *reinterpret_cast<GroupScores*>(&s[group * (kGroupColumns / 2)]);
}

// The factors of one group of columns of a step, read before they are needed.
struct GroupFactors {
  float k;
  float v;
};

class StepFactors {
 public:
  __device__ __forceinline__ StepFactors(const KernelParts& parts, const PrefillTile& tile,
                                         int first_row)
      : k_(parts.scales.k_scale, tile.batch, tile.head / kGqaRatio),
        v_(parts.scales.v_scale, tile.batch, tile.head / kGqaRatio) {
    const AttentionArgs& args = parts.base;
    const HeadFactors<kScaleBlockQ> q(parts.scales.q_scale, tile.batch, tile.head);
    score_log2_ = args.softmax_scale_log2 * q.of_row(min(first_row, args.seqlen_q - 1));
    last_key_ = args.seqlen_kv - 1;
    if constexpr (kBlockFactors) {
      find_largest(args, first_row);
    } else {
      score_log2_ *= k_.of_row(0);
    }
  }

  // Returns the factor by which one of the thread's rows of O is multiplied at the end.
  __device__ __forceinline__ float v_factor(int half) const {
    if constexpr (kBlockFactors) return exp2_approx(v_log2_[half]);
    return v_.of_row(0);
  }

  __device__ __forceinline__ void read(int block, GroupFactors (&factors)[kGroups]) const {
    if constexpr (kBlockFactors) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int key = min(block * kBlockN + group * kGroupColumns, last_key_);
        factors[group] = {1.f, 1.f};
        if (key >= 0) factors[group] = {k_.of_row(key), v_.of_row(key)};
      }
    }
  }

  // Returns the factor of the scores: the softmax is taken of score * factor. If one factor cannot
  // express all factors, multiplies the scores first. Called before any mask.
  __device__ __forceinline__ float apply(const GroupFactors (&factors)[kGroups], Scores& s) const {
    float scale_log2 = score_log2_;
    if constexpr (kBlockFactors && kGroups == 1) scale_log2 *= factors[0].k;
    bool as_they_are = ordinary(scale_log2);
    if constexpr (kBlockFactors && kGroups == 1) as_they_are &= valid_v(factors[0]);
    if (kGroups == 1 && as_they_are) return scale_log2;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      float factor = as_they_are ? 1.f : scale_log2;
      if constexpr (kBlockFactors) {
        if (kGroups > 1) factor *= factors[group].k;
        if (!valid_v(factors[group])) factor = __int_as_float(0x7fffffff);
      }
      GroupScores& scores = group_scores(s, group);
#pragma unroll
      for (int i = 0; i < kGroupColumns / 2; ++i) scores[i] *= factor;
    }
    return as_they_are ? scale_log2 : 1.f;
  }

  // Writes the thread's top level of both rows: its largest score * scale_log2 + log2 r. A level
  // above zero is exact. Other levels are upper bounds, and at most 0.
  __device__ __forceinline__ void top_levels(const GroupFactors (&factors)[kGroups],
                                             float scale_log2, Scores& s, float (&level)[2]) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const RowTops tops = row_tops(group_scores(s, group));
      const float top[2] = {__int_as_float(tops.row[0]), __int_as_float(tops.row[1])};
      raise_levels(group, factors[group], scale_log2, top, level);
    }
  }

  // Writes the true largest levels of the quad.
  __device__ __forceinline__ void true_levels(const GroupFactors (&factors)[kGroups],
                                              float scale_log2, Scores& s,
                                              float (&level)[2]) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      float most[2];
      largest_scores(group_scores(s, group), most);
      raise_levels(group, factors[group], scale_log2, most, level);
    }
    level[0] = quad_max(level[0]);
    level[1] = quad_max(level[1]);
  }

  // Turns scores into probabilities under rows.max, multiplied by r. Adds the probabilities without
  // r to the sums.
  __device__ __forceinline__ void exponentiate_step(const GroupFactors (&factors)[kGroups],
                                                    float scale_log2, Scores& s,
                                                    const RowStats& rows, float (&sums)[2]) const {
    if constexpr (kBlockFactors) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        float ratio_log2[2];
        log2_ratios(factors[group], ratio_log2);
        const float max[2] = {rows.max[0] - ratio_log2[0], rows.max[1] - ratio_log2[1]};
        float sum[2] = {0.f, 0.f};
        exponentiate(group_scores(s, group), max, scale_log2, sum);
        sums[0] = fmaf(sum[0], exp2_approx(-ratio_log2[0]), sums[0]);
        sums[1] = fmaf(sum[1], exp2_approx(-ratio_log2[1]), sums[1]);
      }
    } else {
      exponentiate(s, rows.max, scale_log2, sums);
    }
  }

 private:
  // Finds log2 of the largest factor of V that each of the thread's two rows sees. A warp shares
  // the keys that all rows of the warpgroup see; each thread reads the other keys of its rows.
  __device__ __forceinline__ void find_largest(const AttentionArgs& args, int first_row) {
    const CommonKeys common = common_keys(args, first_row, kWarpgroupRows);
    float largest = v_.largest(common.begin, common.end, static_cast<int>(threadIdx.x) % 32, 32);
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
    const int row = first_row + accumulator_row(threadIdx.x % kWarpgroupThreads);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float seen = largest_seen(v_, args, row + 8 * half, common, largest);
      v_log2_[half] = log2_approx(seen > 0.f ? seen : 1.f);
    }
  }

  // Raises the levels by one more group, whose largest scores are `score`.
  __device__ __forceinline__ void raise_levels(int group, const GroupFactors& factors,
                                               float scale_log2, const float (&score)[2],
                                               float (&level)[2]) const {
    float own[2] = {score[0] * scale_log2, score[1] * scale_log2};
    if constexpr (kBlockFactors) {
      float ratio_log2[2];
      log2_ratios(factors, ratio_log2);
      own[0] += ratio_log2[0];
      own[1] += ratio_log2[1];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      level[half] = group == 0 ? own[half] : fmaxf(level[half], own[half]);
  }

  // Writes log2 r of both rows. It is at most 0, even for a block that a row does not see. For NaN
  // it is the least allowed value. It is computed at each use: kept through a step it would take
  // two registers per group.
  __device__ __forceinline__ void log2_ratios(const GroupFactors& factors,
                                              float (&ratio_log2)[2]) const {
    const float v_log2 = log2_approx(reread(factors.v));
#pragma unroll
    for (int half = 0; half < 2; ++half)
      ratio_log2[half] = fminf(fmaxf(v_log2 - v_log2_[half], kLeastRatioLog2), 0.f);
  }

  static __device__ __forceinline__ bool valid_v(const GroupFactors& factors) {
    return factors.v >= 0.f && factors.v < __int_as_float(0x7f800000);
  }

  HeadFactors<kScaleBlockKv> k_;
  HeadFactors<kScaleBlockKv> v_;
  float score_log2_;
  float v_log2_[2];  // of blocks: log2 of the largest factor that the row sees
  int last_key_;
};

}  // namespace attune
