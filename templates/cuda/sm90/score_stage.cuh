// SPDX-License-Identifier: Apache-2.0
// The score stage of the sm_90 kernels: applies the score program between S = Q K^T and the
// softmax. The program is generated (generator/score/); a kernel's text has it only if its
// problem has one. Parts of the program that depend only on the head or the row run once per tile.
// Positions and addresses are computed once per step. Parts that depend on a column run once for
// both rows of a thread.
//
// A step takes the near form of the program if all rows of the warp allow it, else the exact form.
// The exact form serves large arguments of tanh, captured lines that end within the step, and lines
// at odd addresses. The softmax can do part of the near form with fewer instructions
// (apply_lazily).
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/score_loads.cuh"
#include "cuda/sm90/score_tile.cuh"
#include "cuda/sm90/sm90_layout.cuh"
#include "cuda/sm90/tanh_softmax.cuh"
#include "cuda/sm90/tile_rows.cuh"
#include "cuda/sm90/tile_stream.cuh"
#include "generated/score_program.h"

namespace attune {

// True if the program gets scaled scores. Scores of 8-bit operands have factors, so they are scaled
// first; other scores come as q.k.
constexpr bool kScoresComeScaled = kNarrowOperands;

static_assert(!kScoreStagesLine ||
                  score_tile_offset(kLayout.bytes) + score_tile_bytes(kBlockM, kBlockN) <= 232448,
              "shared memory of one block with the rows of a captured tensor exceeds 227 KB");

// loaded_ahead() returns how many groups of 8 columns are loaded into registers while the scores of
// a step are computed: as many as fit in registers with the accumulators, if both rows of a thread
// read almost the same elements, else 0.
constexpr int kRoomAhead = (kRegisters.moved ? kRegisters.consumer : kRegisters.launch) -
                           prefill_sm90_accumulators(kBlockN, kHeadDimV, kOverlap) - 28;
constexpr int loaded_ahead(int shared_lines) {
  if (shared_lines == 0 || kScoreReadsLines || kNextRow != 8) return 0;
  const int groups = (kRoomAhead / shared_lines - 2) / 2;
  return groups < 0 ? 0 : groups > kBlockN / 8 ? kBlockN / 8 : groups;
}
constexpr int kLoadedAhead = loaded_ahead(kScoreSharedLines);

class ScoreStage {
 public:
  // Begins a tile for the warpgroup whose rows begin at `first_row`.
  __device__ __forceinline__ void begin(const KernelParts& parts, const PrefillTile& tile,
                                        int first_row) {
    scores_ = &parts.scores;
    scale_log2_ = parts.base.softmax_scale_log2;
    const ScoreArgs& scores = parts.scores;
    if constexpr (kCacheArgs)  // the position of the row
      first_row += parts.base.seqlen_kv - parts.base.seqlen_q;
    const int thread = reread_thread_index() % kWarpgroupThreads;
    batch_ = scores.batch0 + tile.batch;
    kv_head_ = scores.kv_head0 + tile.head / kGqaRatio;
    tile_.clear();
    to_natural_ = parts.base.softmax_scale * kScoreLn2;
    const float unit = kScoresComeScaled ? 1.0f : parts.base.softmax_scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      q_idx_[half] = scores.q_position0 + first_row + thread_row(thread) + half * kNextRow;
      head_[half] = scores.head0 + tile.head + thread_head(thread) + half * kNextHead;
      on_head_[half] = score_head(scores, unit, batch_, head_[half], kv_head_);
      on_row_[half] =
          score_row(scores, on_head_[half], batch_, head_[half], kv_head_, q_idx_[half]);
    }
  }

  // Prepares the step that begins at key `first_key`, while its scores are computed.
  __device__ __forceinline__ void prepare(int first_key) {
    key_ = scores_->kv_position0 + first_key + reread_thread_index() % 4 * 2;
    constexpr int kSpan = kBlockN - 6;  // distance from a thread's first column to its last
#pragma unroll
    for (int half = 0; half < 2; ++half)
      steps_[half] = score_step(*scores_, on_head_[half], on_row_[half], batch_, head_[half],
                                kv_head_, q_idx_[half], key_, kSpan);
    if constexpr (kNextHead == 0) score_share(steps_[0], kNextRow, &steps_[1]);
    if constexpr (kLoadedAhead > 0) load_ahead();
    if constexpr (kScoreHasLines && !kScoreStagesLine) prefetch(key_ - kBlockN);
  }

  // Prepares a step for apply_lazily.
  __device__ __forceinline__ void prepare(int first_key, const RowStats* rows) {
    prepare(first_key);
    if constexpr (kScoreIsTanh) limits_ = tanh_limits(on_head_, *rows, scale_log2_);
  }

  // Replaces q.k of the prepared step by the program's results. With 16-bit operands these are in
  // the unit that the program keeps (kScoreKeepsUnits), and the host sets softmax_scale_log2 for
  // that unit. With 8-bit operands the scores are first multiplied by `scale_log2`, which contains
  // log2(e) instead of softmax_scale * log2(e), and the results are in natural units. `row_max` is
  // the maximum of both rows, in log2, if it is already known. Returns the factor by which the
  // softmax multiplies scores in natural units.
  template <int kCount>
  __device__ __forceinline__ float apply(float scale_log2, float (&s)[kCount],
                                         const float* row_max = nullptr) {
    scale_operands(scale_log2, s);
    if (is_near(s, scale_log2, row_max)) {
      apply_near(s);
    } else {
      apply_exactly<!kScoresComeScaled>(key_, s);
    }
    return kScoreLog2E;
  }

  // Like apply, for 16-bit operands and a softmax that calls the functions below. `whole` says that
  // no key of the step is hidden.
  template <int kCount>
  __device__ __forceinline__ void apply_lazily(float (&s)[kCount], const RowStats& rows,
                                               bool masked, bool partial) {
    const bool whole = !masked && !partial;
    is_raw_ = kScoreIsTanh && whole && tanh_may_wait(on_head_, limits_, s, scale_log2_);
    shift_[0] = shift_[1] = 0.f;
    if (is_raw_) return;
    if (is_near(s, scale_log2_, rows.max)) {
      const bool linear = steps_[0].is_linear && steps_[1].is_linear;
      apply_near(s, kScoreIsLinear && __all_sync(~0u, linear));
    } else {
      apply_exactly<false>(key_, s);
    }
  }

  // The softmax calls these functions instead of its own (lazy_softmax.cuh).
  template <int kCount>
  __device__ __forceinline__ bool row_max_grew(const float (&s)[kCount], const RowStats& rows,
                                               float scale_log2) const {
    if (kScoreIsTanh && is_raw_) return false;
    return attune::row_max_grew(s, {{below(0, rows.max), below(1, rows.max)}, {}}, scale_log2);
  }
  template <int kCount>
  __device__ __forceinline__ void raise_row_max(const float (&s)[kCount], RowStats* rows,
                                                float scale_log2, float (&factor)[2]) const {
    float max[2];
    largest_scores(s, max);
#pragma unroll
    for (int half = 0; half < 2; ++half)  // shifts differ between the lanes of a quad
      max[half] = quad_max(fmaf(max[half], scale_log2, shift_[half]));
    raise_to(max, rows, factor);
  }
  template <int kCount>
  __device__ __forceinline__ void exponentiate(float (&s)[kCount], const float (&max)[2],
                                               float scale_log2, float (&sum)[2]) const {
    if (kScoreIsTanh && is_raw_) return exponentiate_tanh(on_head_, s, max, scale_log2, sum);
    const float lowered[2] = {below(0, max), below(1, max)};
    attune::exponentiate(s, lowered, scale_log2, sum);
  }
  __device__ __forceinline__ bool sums_overflow(const float (&sum)[2]) const {
    return kScoreIsTanh && is_raw_ ? tanh_overflows(limits_, sum) : attune::sums_overflow(sum);
  }

  // Applies the program to a step that is computed again, which is rare.
  template <int kCount>
  __device__ __forceinline__ float apply_again(float scale_log2, int first_key,
                                               float (&s)[kCount]) const {
    scale_operands(scale_log2, s);
    apply_exactly<true>(scores_->kv_position0 + first_key + reread_thread_index() % 4 * 2, s);
    return kScoreLog2E;
  }

 private:
  template <int kCount>
  __device__ __forceinline__ void scale_operands(float scale_log2, float (&s)[kCount]) const {
    if constexpr (!kScoresComeScaled) return;
    const float scale = scale_log2 * to_natural_;
#pragma unroll
    for (int i = 0; i < kCount; ++i) s[i] *= scale;
  }

  __device__ __forceinline__ void load_ahead() {
    if (!__all_sync(~0u, steps_[0].is_near && steps_[1].is_near)) return;
#pragma unroll
    for (int n = 0; n < kLoadedAhead; ++n) {
      score_loads(steps_[0], 8 * n, 0u, ahead_[n][0]);
      score_loads(steps_[1], 8 * n, 0u, ahead_[n][1]);
    }
  }

  // Prefetches the elements that the step at `key` reads. Two lanes of a quad serve each of its two
  // rows.
  __device__ __forceinline__ void prefetch(int key) const {
    const int lane = reread_thread_index() % 4;
    ScoreRow on_row = on_row_[0];  // values, so that the array stays in registers
    int q_idx = q_idx_[0];
    if (lane >= 2) {
      on_row = on_row_[1];
      q_idx = q_idx_[1];
    }
    score_prefetch(*scores_, on_head_[0], on_row, batch_, head_[0], kv_head_, q_idx, key - 2 * lane,
                   kBlockN, lane % 2, 2);
  }

  template <int kCount>
  __device__ __forceinline__ bool is_near(const float (&s)[kCount], float scale_log2,
                                          const float* row_max) const {
    if constexpr (!kScoreHasConditions) return true;
    const bool lines = steps_[0].is_near && steps_[1].is_near;
    if constexpr (!kScoreHasReach) return __all_sync(~0u, lines);
    if (kScoreHasLow && row_max != nullptr) {
      // Scores below the near range do not count if the row has far larger scores.
      const bool counts = row_max[0] < fmaf(score_low(on_head_[0]), scale_log2, kFarBelow) ||
                          row_max[1] < fmaf(score_low(on_head_[1]), scale_log2, kFarBelow);
      if (__all_sync(~0u, !counts && lines && is_near_between(0.f, largest_score(s)))) return true;
    }
    const float top = largest_size(s);
    return __all_sync(~0u, lines && is_near_between(-top, top));
  }

  __device__ __forceinline__ bool is_near_between(float bottom, float top) const {
    return score_is_near(*scores_, on_head_[0], on_row_[0], q_idx_[0], bottom, top) &&
           score_is_near(*scores_, on_head_[1], on_row_[1], q_idx_[1], bottom, top);
  }

  // Returns the maximum to compare with scores that lack their shift.
  __device__ __forceinline__ float below(int half, const float (&max)[2]) const {
    return kScoreIsLinear ? max[half] - shift_[half] : max[half];
  }

  // Returns the largest score, like row_tops (lazy_softmax.cuh); 0 if none is above zero. Four
  // chains keep each short.
  template <int kCount>
  __device__ __forceinline__ static float largest_score(const float (&s)[kCount]) {
    int tops[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kCount; i += 2)
      tops[i / 2 % 4] =
          __vimax3_s32(tops[i / 2 % 4], __float_as_int(s[i]), __float_as_int(s[i + 1]));
    return __int_as_float(max(__vimax3_s32(tops[0], tops[1], tops[2]), tops[3]));
  }

  template <int kCount>
  __device__ __forceinline__ static float largest_size(const float (&s)[kCount]) {
    float tops[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int i = 0; i < kCount; ++i) tops[i % 4] = fmaxf(tops[i % 4], fabsf(s[i]));
    return fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
  }

  // `linear`: if a term is linear in a position, its slope times the column is added to the scores
  // here, and its base is left to the softmax (shift_).
  template <int kCount>
  __device__ __forceinline__ void apply_near(float (&s)[kCount], bool linear = false) {
    const void* lines[2] = {score_staged_line(steps_[0]), score_staged_line(steps_[1])};
    if constexpr (kScoreStagesLine) tile_.await(key_, lines);
    if (linear) {
      apply_near_form<true>(s);
#pragma unroll
      for (int half = 0; half < 2; ++half) shift_[half] = linear_of(half).base * scale_log2_;
    } else {
      apply_near_form<false>(s);
    }
    if constexpr (kScoreStagesLine) fetch_next(lines);
  }

  __device__ __forceinline__ ScoreLinear linear_of(int half) const {
    return score_linear(*scores_, head_of_row(on_head_, half), on_row_[half], steps_[half], batch_,
                        head_[half], kv_head_, q_idx_[half]);
  }

  template <bool kLinear, int kCount>
  __device__ __forceinline__ void apply_near_form(float (&s)[kCount]) const {
    const float slopes[2] = {kLinear ? linear_of(0).slope : 0.f,
                             kLinear ? linear_of(1).slope : 0.f};
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      unsigned words[2][2] = {};
      if constexpr (kScoreStagesLine) tile_.read(i / 4, words);
      apply_near_columns<kLinear>(i, words[0], slopes, s);
      apply_near_columns<kLinear>(i + 4, words[1], slopes, s);
    }
  }

  // Fetches the captured rows of the next step, whose keys lie before this step's keys, if such
  // keys exist.
  __device__ __forceinline__ void fetch_next(const void* const (&lines)[2]) {
    const bool exists = steps_[0].staged_index >= kBlockN && steps_[1].staged_index >= kBlockN;
    if (!__all_sync(~0u, exists)) return;
    const void* next[2] = {static_cast<const char*>(lines[0]) - 2 * kBlockN,
                           static_cast<const char*>(lines[1]) - 2 * kBlockN};
    tile_.fetch(key_ - kBlockN, next);
  }

  // Applies the program to two columns of both rows. `staged` has the elements of the staged line
  // for these columns.
  template <bool kLinear, int kCount>
  __device__ __forceinline__ void apply_near_columns(int i, const unsigned (&staged)[2],
                                                     const float (&slopes)[2],
                                                     float (&s)[kCount]) const {
    const int offset = i / 4 * 8;
    ScoreLoaded loaded[2][2];  // rows, columns
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (i / 4 < kLoadedAhead) {
        loaded[half][0] = ahead_[i / 4][half][0];
        loaded[half][1] = ahead_[i / 4][half][1];
      } else {
        score_loads(steps_[half], offset, staged[half], loaded[half]);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int key = key_ + offset + j;
      ScoreColumn column = score_near_column(*scores_, on_head_[0], steps_[0], loaded[0][j], batch_,
                                             head_[0], kv_head_, key, offset + j);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1 && kNextHead > 0)
          column = score_near_column(*scores_, on_head_[1], steps_[1], loaded[1][j], batch_,
                                     head_[1], kv_head_, key, offset + j);
        float& score = s[i + j + 2 * half];
        if constexpr (kLinear) {
          score = score_linear_element(*scores_, on_head_[half], on_row_[half], column,
                                       steps_[half], loaded[half][j], score, batch_, head_[half],
                                       kv_head_, q_idx_[half], key, offset + j);
          score = fmaf(slopes[half], static_cast<float>(offset + j), score);
        } else {
          score = score_near_element(*scores_, on_head_[half], on_row_[half], column, steps_[half],
                                     loaded[half][j], score, batch_, head_[half], kv_head_,
                                     q_idx_[half], key, offset + j);
        }
      }
    }
  }

  // Applies the exact form, which is rare. If the program reads tensors, this is a loop through
  // local memory: addresses of all columns at once would take registers from the steps around it.
  // kRolled selects the loop for other programs, too, if at most one step of a tile gets here: the
  // loop compiles in far less time.
  template <bool kRolled, int kCount>
  __device__ __forceinline__ void apply_exactly(int key, float (&s)[kCount]) const {
    if constexpr (!kScoreHasLines && !kRolled) {
      apply_to_columns(key, s);
    } else {
      constexpr int kPart = kCount % 16 == 0 ? 16 : 8;
      float held[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) held[i] = s[i];
#pragma unroll 1
      for (int first = 0; first < kCount; first += kPart) {
        float part[kPart];
#pragma unroll
        for (int i = 0; i < kPart; ++i) part[i] = held[first + i];
        apply_to_columns(key + first * 2, part);
#pragma unroll
        for (int i = 0; i < kPart; ++i) held[first + i] = part[i];
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) s[i] = held[i];
    }
  }

  template <int kCount>
  __device__ __forceinline__ void apply_to_columns(int key, float (&s)[kCount]) const {
    const ScoreArgs& scores = *scores_;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int kv_idx = reread(key) + i / 4 * 8 + j;  // addresses of one column only
        const ScoreColumn column =
            score_column(scores, on_head_[0], batch_, head_[0], kv_head_, kv_idx);
        s[i + j] = score_element(scores, on_head_[0], on_row_[0], column, s[i + j], batch_,
                                 head_[0], kv_head_, q_idx_[0], kv_idx);
        const ScoreColumn below =
            kNextHead == 0 ? column
                           : score_column(scores, on_head_[1], batch_, head_[1], kv_head_, kv_idx);
        s[i + j + 2] = score_element(scores, on_head_[1], on_row_[1], below, s[i + j + 2], batch_,
                                     head_[1], kv_head_, q_idx_[1], kv_idx);
      }
    }
  }

  const ScoreArgs* scores_;
  ScoreLoaded ahead_[kLoadedAhead > 0 ? kLoadedAhead : 1][2]
                    [2];  // columns 8 n and 8 n + 1 of both rows
  ScoreTile tile_;
  ScoreStep steps_[2];  // of the prepared step
  int key_;             // this thread's first key in the prepared step
  int batch_;
  int kv_head_;
  float scale_log2_;   // for 16-bit operands
  TanhLimits limits_;  // of the prepared step
  bool is_raw_;        // true if the step's scores are still q.k
  float shift_[2];     // still to be added to the scores of each row, in log2
  float to_natural_;   // softmax_scale / log2(e)
  int head_[2];        // of the thread's two rows
  int q_idx_[2];
  ScoreHead on_head_[2];
  ScoreRow on_row_[2];
};

}  // namespace attune
