// SPDX-License-Identifier: Apache-2.0
// The consumer role of prefill_sm90: one warpgroup computes 64 rows of O. A step of kBlockN keys
// computes S = Q K^T, applies the score stage if there is one, masks boundary steps, applies the
// softmax, rounds P to 16 bits in registers, and adds P V to O. The products and their barriers are
// in wgmma_products.cuh.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/sm90/consumer_stages.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "cuda/sm90/tile_stream.cuh"
#include "cuda/sm90/wgmma_products.cuh"

namespace attune {

// Rounds S into A operands. A rounded pair of accumulators is one A operand register of the next
// product, so no data moves between lanes.
__device__ __forceinline__ void round_probabilities(const Scores& s, Probabilities& p) {
#pragma unroll
  for (int i = 0; i < kBlockN / 4; ++i) p[i] = pack<kDtypeQ>(s[2 * i], s[2 * i + 1]);
}

class WgmmaConsumer {
 public:
  // Called by the idle warps of the producing warpgroup. Does nothing: these products read V as
  // given.
  __device__ __forceinline__ static void prepare_values(unsigned /*shared*/) {}

  __device__ __forceinline__ WgmmaConsumer(const KernelParts& parts, unsigned shared, int warpgroup)
      : parts_(parts), args_(parts.base), warpgroup_(warpgroup), products_(shared, warpgroup) {}

  // Computes O of one tile, not yet divided by the row sums. On return `rows` is complete; O is
  // complete only after finish().
  __device__ __forceinline__ void attend(const PrefillTile& tile, unsigned parity, Output& o,
                                         RowStats* rows) {
    const int first_row = tile.first_row + warpgroup_ * kHeadRows;  // the warpgroup's first row
    // Includes rows past seqlen_q: a ragged warpgroup must not take the masked path for them.
    const int origin = first_key(args_, tile.first_row);
    const BlockRange range =
        visible_blocks<kBlockN>(args_, first_row, first_row + kHeadRows, origin);
    Scores s;
    Probabilities p;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] = 0.f;
    products_.wait_q(parity);
    const OwnSteps own = own_steps(tile, range);
    logits_.begin();
    stage_.begin(parts_, tile, first_row);
    products_.skip_hidden_steps(tile.last_block - own.last);
    blocks_.begin(tile);
    first_step(tile, own, first_row, range, s, p, rows);
#pragma unroll 1
    for (int block = own.last - 1; block >= own.first; --block) {
      if constexpr (kMaskProgram) block = blocks_.next();
      stage_.prepare(origin + block * kBlockN, rows);
      products_.multiply_next(block == own.first, s, p, o);
      const bool partial = is_partial(blocks_.taken(), warpgroup_);  // for the mask program
      const bool masked = kMasksInside && range.needs_mask(block);
      stage_.apply_lazily(s, *rows, masked, partial);
      if (partial) hide_scores(parts_, tile, first_row, origin + block * kBlockN, s);
      if (masked) mask_scores(args_, s, first_row, block, range, origin);
      logits_.see(s);
      float factor[2];
      float sum[2] = {0.f, 0.f};
      bool grew = kRowMax == 1 ? masked : stage_.row_max_grew(s, *rows, args_.softmax_scale_log2);
      if constexpr (kMaskProgram) grew = grew || (kRowMax == 1 && partial);
      if (grew) stage_.raise_row_max(s, rows, args_.softmax_scale_log2, factor);
      dropout_.make(origin + block * kBlockN);
      stage_.exponentiate(s, rows->max, args_.softmax_scale_log2, kRowMax == 1 ? sum : rows->sum);
      if constexpr (kOverlap) finish(o);
      const bool arrived = products_.operands_arrived();
      round_and_drop(s, p);
      if constexpr (kRowMax == 1) {
        // Masked steps evaluate this too, so that the additions stay among the exponentials.
        const bool overflow = stage_.sums_overflow(sum);
        if (overflow && !masked) {
          redo_step(tile, first_row, block, s, p, rows, sum, factor);
          grew = true;
        }
        rows->sum[0] += sum[0];
        rows->sum[1] += sum[1];
      }
      if (grew) rescale(o, factor);
      if (!arrived) products_.await_operands(block != own.first);
    }
    products_.issue_last_pv(o, p, own.first - tile.first_block);
    logits_.join(parts_, tile, warpgroup_);
  }

  // Waits for the last product of attend().
  __device__ __forceinline__ void finish(Output& o) { products_.wait_pv(o); }

  __device__ __forceinline__ RowEnds ends(const RowStats& rows) const { return end_rows(rows); }

 private:
  // Returns the first key of a block. Computed again where it is needed, to save registers.
  __device__ __forceinline__ int key_of(const PrefillTile& tile, int block) const {
    return first_key(args_, tile.first_row) + block * kBlockN;
  }

  __device__ __forceinline__ void round_and_drop(const Scores& s, Probabilities& p) {
    round_probabilities(s, p);
    dropout_.keep(p);
  }

  __device__ __forceinline__ void first_step(const PrefillTile& tile, const OwnSteps& own,
                                             int first_row, const BlockRange& range, Scores& s,
                                             Probabilities& p, RowStats* rows) {
    dropout_.begin(parts_, tile, first_row);
    products_.multiply_first(own.last == own.first, s);
    if (own.last != tile.last_block) products_.skip_hidden_v();
    if constexpr (kCacheArgs) products_.expect_values(args_.seqlen_kv - own.last * kBlockN);
    stage_.prepare(key_of(tile, own.last));
    stage_.apply(args_.softmax_scale_log2, s);
    const bool partial = is_partial(blocks_.taken(), warpgroup_);
    if (partial) hide_scores(parts_, tile, first_row, key_of(tile, own.last), s);
    if (range.needs_mask(own.last))
      mask_scores(args_, s, first_row, own.last, range, key_of(tile, 0));
    logits_.see(s);
    dropout_.make(key_of(tile, own.last));
    softmax_first(s, rows, args_.softmax_scale_log2);
    round_and_drop(s, p);
    products_.await_operands(own.last != own.first);
  }

  // Computes the probabilities of this step again, with the true maximum of its scores: the rare
  // case of row_max 1.
  template <int kCount>
  __device__ __forceinline__ void redo_step(const PrefillTile& tile, int first_row, int block,
                                            float (&s)[kCount], Probabilities& p, RowStats* rows,
                                            float (&sum)[2], float (&factor)[2]) {
    // A partly visible step has already used the true maximum.
    if (is_partial(blocks_.taken(), warpgroup_)) return;
    recompute_scores(args_, tile, first_row, block, s);
    stage_.apply_again(args_.softmax_scale_log2, key_of(tile, block), s);
    add_diagonals(parts_, tile.batch, tile.head, first_row, key_of(tile, block), s);
    raise_row_max(s, rows, args_.softmax_scale_log2, factor);
    sum[0] = sum[1] = 0.f;
    exponentiate(s, rows->max, args_.softmax_scale_log2, sum);
    round_and_drop(s, p);
  }

  const KernelParts& parts_;
  const AttentionArgs& args_;
  int warpgroup_;
  WgmmaProducts products_;
  ScoreStage stage_;
  PrefillDropout dropout_;
  BlockWalk blocks_;
  MaxLogits logits_;
};

}  // namespace attune
