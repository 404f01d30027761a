// SPDX-License-Identifier: Apache-2.0
// The consumers of mla_sm90: two warpgroups share 64 rows of Q. They own blocks of 64 keys in turn.
// In P V, each multiplies its half of the columns of every block. For one block:
//
//   its owner:       S = Q K^T, 64 x 64, with Q from shared memory
//                    maximum of all blocks so far, P = exp2(S - maximum) in registers;
//                    stores both in shared memory and arrives on p_full
//                    O += P V, half of the columns, with P from registers
//   the other:       waits for p_full; O += P V, the other half, with P from shared memory
//
// A warpgroup starts the scores of its next block once it has multiplied the other's block by P. So
// the products of one warpgroup hide the softmax of the other and its wait for keys. One buffer
// serves P: the warpgroup that reads it last writes it next.
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/mla_sm90/listed_scores.cuh"
#include "cuda/mla_sm90/mla_sums.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "generated/wgmma.cuh"

namespace attune {

using MlaScores = float[kBlockN / 2];      // (64, kBlockN) over the warpgroup
using MlaWeights = unsigned[kBlockN / 4];  // the same shape, 16 bits each
using MlaOutput = float[kHeadDimV / 2];    // (64, kHeadDimV): kHeadDimV is half of V's columns
constexpr int kPvParts = mla_pv_parts(kHeadDimV, kConvertsKeys);
using MlaOutputPart = float[kHeadDimV / 2 / kPvParts];

class MlaConsumer {
  using KWalk = SlotWalk<kLayout.k_slots, kLayout.k_slot_bytes>;
  static constexpr unsigned kPanelBytes = kBlockN * kPanelRowBytes;

 public:
  __device__ __forceinline__ MlaConsumer(unsigned shared, int half)
      : shared_(shared),
        half_(half),
        q_(wgmma_descriptor_low(shared + kLayout.q, 0)),
        p_(wgmma_descriptor_low(shared + kMlaLayout.p, 0)),
        k_(shared + kLayout.k_full, wgmma_descriptor_low(shared + kLayout.k, kPanelBytes)) {}

  // Computes O of one tile, not yet divided by the row sums. `rows` gets the maxima and sums over
  // all keys of the tile. `scale_log2` multiplies scores.
  __device__ __forceinline__ void attend(const AttentionArgs& args, float scale_log2,
                                         const PrefillTile& tile, unsigned parity, MlaOutput& o,
                                         RowStats* rows) {
    const BlockRange range =
        visible_blocks<kBlockN>(args, tile.first_row, tile.first_row + kHeadRows);
    rows->max[0] = rows->max[1] = kLowestMax;
    rows->sum[0] = rows->sum[1] = 0.f;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] = 0.f;
    wgmma_pin(o);  // zeros are in registers before the first wgmma is issued
    MlaScores s;
    KWalk own = k_;  // the block whose scores this warpgroup computes next
    if (half_ == 1) own.advance();
    mbarrier_wait(shared_ + kLayout.q_full, parity, "q_full");
    const int keys = args.seqlen_kv - tile.last_block * kBlockN;
    if (!kGathersKeys && keys < kBlockN) clear_values(max(keys, 0));
    int block = tile.last_block;
    if (half_ == 1 && block == tile.first_block) {
      multiply_other(true, o, rows);
    } else {
      issue_qk(s, &own);
      wgmma_wait<0>();
      wgmma_pin(s);
      if (half_ == 1) {
        multiply_other(false, o, rows);
        --block;
      }
#pragma unroll 1
      for (;; --block) {
        if constexpr (kKeyLists)
          hide_unlisted(shared_, k_.full(), 2 * (lane() % 4), s);
        else if (range.needs_mask(block))
          mask(args, tile, block, s);
        multiply_own(scale_log2, s, o, rows);
        if (block == tile.first_block) break;
        --block;
        multiply_other(block == tile.first_block, o, rows);
        if (block == tile.first_block) break;
        issue_qk(s, &own);
        wgmma_wait<0>();
        wgmma_pin(s);
      }
    }
    add_sums(parity, rows);
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  }

  // Issues the scores of the block at `own`, then moves `own` two blocks on.
  __device__ __forceinline__ void issue_qk(MlaScores& s, KWalk* own) const {
    mbarrier_wait(own->full(), own->parity(), "k_full");
    see_copied_keys();
    wgmma_fence();
    mla_qk(s, wgmma_descriptor<kPanelRowBytes>(q_), wgmma_descriptor<kPanelRowBytes>(own->tile()));
    wgmma_commit();
    own->advance();
    own->advance();
  }

  __device__ __forceinline__ void multiply_own(float scale_log2, MlaScores& s, MlaOutput& o,
                                               RowStats* rows) {
    float factor[2];
    raise_row_max(s, rows, scale_log2, factor);
    exponentiate(s, rows->max, scale_log2, rows->sum);
    MlaWeights p;
#pragma unroll
    for (int i = 0; i < kBlockN / 4; ++i) p[i] = pack<kDtypeQ>(s[2 * i], s[2 * i + 1]);
    store_p(p);
    const int row = accumulator_row(thread());
    if (lane() % 4 == 0) {
      store_shared_word(place_of_max(half_, row), __float_as_int(rows->max[0]));
      store_shared_word(place_of_max(half_, row + 8), __float_as_int(rows->max[1]));
    }
    fence_proxy_async();  // the other warpgroup's wgmma reads P
    mbarrier_arrive(shared_ + kMlaLayout.p_full + 8 * half_);
    rescale(o, factor);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < kPvParts; ++part)
      mla_own_pv(columns_of(o, part), p, wgmma_descriptor<kPanelRowBytes>(values(part)), 1);
    finish_block(o);
  }

  __device__ __forceinline__ void multiply_other(bool is_last, MlaOutput& o, RowStats* rows) {
    mbarrier_wait(k_.full(), k_.parity(), "k_full");
    see_copied_keys();
    mbarrier_wait(shared_ + kMlaLayout.p_full + 8 * (1 - half_), p_parity_, "p_full");
    p_parity_ ^= 1;
    mbarrier_arrive_if(is_last && lane() == 0, shared_ + kLayout.q_empty);  // Q is read no more
    const int row = accumulator_row(thread());
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float max = __uint_as_float(load_shared_word(place_of_max(1 - half_, row + 8 * i)));
      factor[i] = exp2_approx(rows->max[i] - max);
      rows->max[i] = max;
      rows->sum[i] *= factor[i];
    }
    rescale(o, factor);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < kPvParts; ++part)
      mla_other_pv(columns_of(o, part), wgmma_descriptor<kPanelRowBytes>(p_),
                   wgmma_descriptor<kPanelRowBytes>(values(part)), 1);
    finish_block(o);
  }

  // Returns the address of a part of this warpgroup's columns of V, in units of 16 bytes.
  __device__ __forceinline__ unsigned values(int part) const {
    return k_.tile() + half_ * (kHeadDimV / kPanelColumns * kPanelBytes / 16) +
           part * (kHeadDimV / kPvParts / kPanelColumns * kPanelBytes / 16);
  }
  static __device__ __forceinline__ MlaOutputPart& columns_of(MlaOutput& o, int part) {
    return reinterpret_cast<MlaOutputPart&>(o[part * (kHeadDimV / 2 / kPvParts)]);
  }

  // Waits until P V is added to O, and frees the slot.
  __device__ __forceinline__ void finish_block(MlaOutput& o) {
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(o);
    mbarrier_arrive_if(lane() == 0, k_.empty());
    k_.advance();
  }

  // Masks scores like mask_scores in wgmma_products.cuh.
  __device__ __forceinline__ void mask(const AttentionArgs& args, const PrefillTile& tile,
                                       int block, MlaScores& s) const {
    const int row = tile.first_row + thread_row(thread());
    const int origin = block * kBlockN + 2 * (lane() % 4);
    const KeyInterval<int> upper = visible_keys(args, row);
    const KeyInterval<int> lower = visible_keys(args, row + kNextRow);
    const int first[2] = {upper.first - origin, lower.first - origin};
    const int last[2] = {upper.last - origin, lower.last - origin};
#pragma unroll
    for (int i = 0; i < kBlockN / 2; ++i) {
      const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
      if (column > last[half] || column < first[half]) s[i] = hidden_score();
    }
  }

  __device__ __forceinline__ unsigned place_of(int region, int row) const {
    return shared_ + region + row * 4;
  }

  __device__ __forceinline__ unsigned place_of_max(int owner, int row) const {
    return place_of(kMlaLayout.maxima + owner * kWarpgroupRows * 4, row);
  }

  // Stores P, four 8 x 8 matrices at a time: two blocks of 8 keys for the upper 8 rows and for the
  // lower 8 rows.
  __device__ __forceinline__ void store_p(const MlaWeights& p) const {
    const int matrix = lane() / 8, row = thread() / 32 * 16 + matrix % 2 * 8 + lane() % 8;
    const unsigned to = shared_ + kMlaLayout.p + row * kPanelRowBytes;
#pragma unroll
    for (int pair = 0; pair < kBlockN / 16; ++pair) {
      const int chunk = 2 * pair + matrix / 2;
      const unsigned words[4] = {p[4 * pair], p[4 * pair + 1], p[4 * pair + 2], p[4 * pair + 3]};
      stmatrix_x4(to + ((chunk ^ row % 8) << 4), words);
    }
  }

  static __device__ __forceinline__ void rescale(MlaOutput& o, const float (&factor)[2]) {
    if (!__any_sync(~0u, factor[0] != 1.f || factor[1] != 1.f)) return;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] *= factor[i / 2 % 2];
  }

  // Clears this warpgroup's columns of V past the last key. The memory there may hold NaN, and 0 *
  // NaN is NaN. The scores of these keys need no clearing: the mask hides them.
  __device__ __forceinline__ void clear_values(int keys) const {
    mbarrier_wait(k_.full(), k_.parity(), "k_full");
    constexpr int kChunks = kPanelRowBytes / 16, kPanels = kHeadDimV / kPanelColumns;
    const unsigned slot = (k_.tile() & 0x3fffu) << 4;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      for (int at = keys * kChunks + thread(); at < kBlockN * kChunks; at += kWarpgroupThreads)
        store_shared_16(slot + (half_ * kPanels + panel) * kPanelBytes + at * 16, {{0, 0, 0, 0}});
    fence_proxy_async();
    named_barrier_sync(kBarrierWarpgroup + half_, kWarpgroupThreads);
  }

  // Adds the row sums of both warpgroups, so that they cover all keys.
  __device__ __forceinline__ void add_sums(unsigned parity, RowStats* rows) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) rows->sum[i] = quad_sum(rows->sum[i]);
    add_sums_of_halves(shared_ + kMlaLayout.sums, parity, half_, accumulator_row(thread()),
                       rows->sum);
  }

  unsigned shared_;
  int half_;
  unsigned q_, p_;         // low halves of descriptors
  unsigned p_parity_ = 0;  // parity of p_full for the other's next block
  KWalk k_;
};

}  // namespace attune
