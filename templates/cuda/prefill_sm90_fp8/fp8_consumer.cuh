// SPDX-License-Identifier: Apache-2.0
// The consumer role of prefill_sm90_fp8: one warpgroup computes 64 rows of O. It is like
// wgmma_consumer.cuh, but P is rounded to e4m3, and V is transposed in shared memory. The keys of V
// are in the order in which a lane holds P (shared/layouts/prefill_sm90_fp8_layout.h), so no data
// moves between lanes.
//
// P is scaled up to use the range of e4m3. fp8_row_max.cuh and fp8_late_max.cuh follow its maximum.
//
// The tensor cores accumulate 8-bit products with about 14 bits, rounded towards zero. A sum of
// thousands of terms of one sign loses several percent. So every kFlushKeys keys the accumulator is
// added to separate sums (fp8_flush.cuh) and restarts. These sums use the memory where O is staged,
// so the previous tile must have left it. Without staging they are in the workspace, which stays in
// the L2 cache.
#pragma once

#include "cuda/prefill_sm90_fp8/fp8_flush.cuh"
#include "cuda/prefill_sm90_fp8/fp8_late_max.cuh"
#include "cuda/prefill_sm90_fp8/fp8_row_max.cuh"
#include "cuda/prefill_sm90_fp8/fp8_step_factors.cuh"
#include "cuda/prefill_sm90_fp8/fp8_transpose_inside.cuh"
#include "cuda/ptx/round_8bit.cuh"
#include "cuda/sm90/consumer_stages.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/wgmma_products.cuh"

namespace attune {

// Rounds probabilities to e4m3. Accumulators 8 i to 8 i + 7 belong to 16 keys: columns
// 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of two rows.
__device__ __forceinline__ void round_probabilities(const Scores& s, Probabilities& p) {
#pragma unroll
  for (int i = 0; i < kBlockN / 16; ++i) {
    const float* x = &s[8 * i];
    p[2 * i] = pack_fp8<Dtype::kE4m3>(x[0], x[1], x[4], x[5]);
    p[2 * i + 1] = pack_fp8<Dtype::kE4m3>(x[2], x[3], x[6], x[7]);
  }
}

// The number of steps between flushes that is nearest to kFlushKeys keys.
constexpr int kFlushInterval = (kFlushKeys + kBlockN / 2) / kBlockN;
static_assert(kFlushInterval == 0 || kOStaging || kScheduler != kOneTile,
              "the workspace has room for the flushed sums of persistent blocks");

class Fp8Consumer {
  static constexpr int kPanelBytes = kWarpgroupRows * kPanelRowBytes;
  static constexpr int kSumsBytes = prefill_sm90_flushed_bytes(kHeadDimV);  // of a warpgroup
  static constexpr int kSumsInWorkspace = kScheduler == kDynamic ? kTileCounterBytes : 0;
  static constexpr int kGainLog2 = kDtypeKv == Dtype::kE4m3 ? 6 : -1;  // 448 or 57344 to 28672
  using Flushed = FlushedOutput<kHeadDimV / 2, kPanelBytes, kGainLog2>;

 public:
  // Runs in the idle warps of the producing warpgroup.
  __device__ __forceinline__ static void prepare_values(unsigned shared) {
    if constexpr (kTransposeInside) transpose_tiles(shared);
  }

  __device__ __forceinline__ Fp8Consumer(const KernelParts& args, unsigned shared, int warpgroup)
      : args_(args), shared_(shared), warpgroup_(warpgroup), products_(shared, warpgroup) {}

  // Computes O of one tile, not yet divided by the row sums. `rows` is complete when it returns, O
  // only after finish().
  __device__ __forceinline__ void attend(const PrefillTile& tile, unsigned parity, Output& o,
                                         RowStats* rows) {
    const int first_row = tile.first_row + warpgroup_ * kWarpgroupRows;  // of the warpgroup
    // Rows past seqlen_q count as rows here, so that a ragged warpgroup does not take the masked
    // path because of them.
    const BlockRange range = visible_blocks<kBlockN>(args_, first_row, first_row + kWarpgroupRows);
    const StepFactors factors(args_, tile, first_row);
    stage_.begin(args_, tile, first_row);
    Scores s;
    Probabilities p;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] = 0.f;
    flushed_.clear();
    products_.wait_q(parity);
    const OwnSteps own = own_steps(tile, range);
    const Work work{tile, own, first_row, range, factors};
    products_.skip_hidden_steps(tile.last_block - own.last);
    blocks_.begin(tile);
    first_step(work, s, p, rows);
    int block = own.last - 1;
    // If nothing is flushed, the inner loop runs once: with a real nest of two loops ptxas spills.
#pragma unroll 1
    while (block >= own.first) {
      const int flush_after = flush_block(own.first, block);
#pragma unroll 1
      do {
        if constexpr (kMaskProgram) block = blocks_.next();
        step(work, block, s, p, o, rows);
        --block;
      } while (kFlushInterval > 0 && block >= flush_after);
      if constexpr (kFlushInterval > 0)
        if (block >= own.first) flush(*rows, o);
    }
    products_.issue_last_pv(o, p, own.first - tile.first_block);
    v_factor_[0] = factors.v_factor(0);
    v_factor_[1] = factors.v_factor(1);
  }

  // Waits for the last product of attend().
  __device__ __forceinline__ void finish(Output& o) {
    products_.wait_pv(o);
    if constexpr (kFlushInterval > 0) {
      flushed_.give_back(sums_address(), o);
      __syncwarp();  // before the warp stages O in the same bytes
    }
  }

  __device__ __forceinline__ RowEnds ends(const RowStats& rows) const {
    RowEnds ends = end_rows(rows);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (ends.inverse[half] != 0.f)
        ends.inverse[half] *= v_factor_[half];  // 0: the row sees nothing
    return ends;
  }

 private:
  // True if the maximum is found before the exponentials. With row_max 1 this is so in a masked
  // step and in the step after it, since a row may have seen nothing yet.
  static __device__ __forceinline__ bool tests_first(const BlockRange& range, int block) {
    if constexpr (kRowMax == 0) return true;
    return kMasksInside && (range.needs_mask(block) || range.needs_mask(block + 1));
  }

  // Raises the maximum in a step that is partly hidden, and behind it.
  __device__ __forceinline__ bool raise_first(const StepFactors& factors,
                                              const GroupFactors (&here)[kGroups], float scale_log2,
                                              Scores& s, RowStats* rows, float (&factor)[2]) {
    float level[2];
    factors.top_levels(here, scale_log2, s, level);
    if (!must_raise(level, *rows)) return false;
    raise_to_step_max(factors, here, scale_log2, s, level, rows, factor);
    return true;
  }

  // Rescales O to the new maximum, and waits for the operands of the next products.
  __device__ __forceinline__ void end_step(bool grew, const float (&factor)[2], bool arrived,
                                           bool more, Output& o) {
    if (grew) {
      rescale(o, factor);
      if constexpr (kFlushInterval > 0) flushed_.rescale(factor);
    }
    if (!arrived) products_.await_operands(more);
  }

  // A warpgroup's work in a tile.
  struct Work {
    const PrefillTile& tile;
    const OwnSteps& own;
    int first_row;  // of the warpgroup
    const BlockRange& range;
    const StepFactors& factors;
  };

  __device__ __forceinline__ void first_step(const Work& work, Scores& s, Probabilities& p,
                                             RowStats* rows) {
    const auto& [tile, own, first_row, range, factors] = work;
    GroupFactors here[kGroups];
    factors.read(own.last, here);
    products_.multiply_first(own.last == own.first, s);
    if (own.last != tile.last_block) products_.skip_hidden_v();
    float scale_log2 = factors.apply(here, s);
    stage_.prepare(own.last * kBlockN);
    scale_log2 = stage_.apply(scale_log2, s);
    if (is_partial(blocks_.taken(), warpgroup_))
      hide_scores(args_, tile, first_row, own.last * kBlockN, s);
    if (range.needs_mask(own.last)) mask_scores(args_, s, first_row, own.last, range);
    first_row_max(factors, here, scale_log2, s, rows);
    factors.exponentiate_step(here, scale_log2, s, *rows, rows->sum);
    round_probabilities(s, p);
    products_.await_operands(own.last != own.first);
  }

  __device__ __forceinline__ void step(const Work& work, int block, Scores& s, Probabilities& p,
                                       Output& o, RowStats* rows) {
    const auto& [tile, own, first_row, range, factors] = work;
    GroupFactors here[kGroups];
    factors.read(block, here);
    stage_.prepare(block * kBlockN);
    products_.multiply_next(block == own.first, s, p, o);
    float scale_log2 = factors.apply(here, s);
    scale_log2 = stage_.apply(scale_log2, s);
    const int entry = blocks_.taken();  // for the mask program
    if (is_partial(entry, warpgroup_)) hide_scores(args_, tile, first_row, block * kBlockN, s);
    const bool tested = tests_first(range, block);
    float factor[2];
    float sum[2] = {0.f, 0.f};
    bool grew = false;
    if (tested) {
      if (kMasksInside && range.needs_mask(block)) mask_scores(args_, s, first_row, block, range);
      float level[2];
      factors.top_levels(here, scale_log2, s, level);
      grew = must_raise(level, *rows);
      if (grew) raise_to_step_max(factors, here, scale_log2, s, level, rows, factor);
    }
    if (!tested && is_partial(entry | blocks_.taken_before(), warpgroup_))
      grew = raise_first(factors, here, scale_log2, s, rows, factor);
    factors.exponentiate_step(here, scale_log2, s, *rows, kRowMax == 1 ? sum : rows->sum);
    if constexpr (kOverlap) products_.wait_pv(o);
    const bool arrived = products_.operands_arrived();
    round_probabilities(s, p);
    if constexpr (kRowMax == 1) {
      const bool late = !tested && may_have_grown(sum);
      if (__any_sync(~0u, late || grew || !arrived)) {  // one branch for all rare cases
        if (__any_sync(~0u, late)) {
          const auto scores_again = [&](Scores& again) {
            recompute_scores(args_, work.tile, work.first_row, block, again);
            float again_log2 = work.factors.apply(here, again);
            return stage_.apply_again(again_log2, block * kBlockN, again);
          };
          grew = follow_growth(factors, here, scores_again, s, rows, sum, factor);
          if (grew) round_probabilities(s, p);
        }
        end_step(grew, factor, arrived, block != own.first, o);
      }
      rows->sum[0] += sum[0];
      rows->sum[1] += sum[1];
    } else {
      end_step(grew, factor, arrived, block != own.first, o);
    }
  }

  // Returns the next block, from `block` downwards, after which the accumulator is flushed, but at
  // least `first_block`, where the tile ends.
  __device__ __forceinline__ int flush_block(int first_block, int block) const {
    if constexpr (kFlushInterval == 0) return first_block;
    return max(first_block, block / kFlushInterval * kFlushInterval);
  }

  // Flushes O, the sum over the steps before this one. The row sums already include the
  // probabilities of these steps.
  __device__ __forceinline__ void flush(const RowStats& rows, Output& o) {
    if (kOStaging && flushed_.empty())
      await_staging(warpgroup_, reread_thread_index() % kWarpgroupThreads);
    const float sum[2] = {quad_sum(rows.sum[0]), quad_sum(rows.sum[1])};
    flushed_.take(sums_address(), sum, o);
    products_.overwrite_output();
  }

  // Returns the address of the thread's flushed sums. It is recomputed at each use, so that it
  // holds no register through the loop.
  template <bool kInShared = (kOStaging > 0)>
  __device__ __forceinline__ typename SumsPlace<kInShared>::Address sums_address() const {
    const unsigned offset = reread(warpgroup_) * kSumsBytes +
                            Flushed::offset_of_thread(reread_thread_index() % kWarpgroupThreads);
    if constexpr (kInShared) {
      return shared_ + kLayout.o + offset;
    } else {
      const long long first = static_cast<long long>(blockIdx.x) * kWarpgroups * kSumsBytes;
      return static_cast<char*>(args_.base.workspace) + kSumsInWorkspace + first + offset;
    }
  }

  const KernelParts& args_;
  unsigned shared_;
  int warpgroup_;
  float v_factor_[2];
  WgmmaProducts products_;
  Flushed flushed_;
  ScoreStage stage_;
  BlockWalk blocks_;
};

}  // namespace attune
