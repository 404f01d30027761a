// SPDX-License-Identifier: Apache-2.0
// The consumers of mla_sm90: two warpgroups share 64 rows of Q and every step of 64 keys. As K, each has 32 of the keys; as V, each has half of
// the columns of all 64. Between the products they meet twice:
//
//   S = Q K^T of the own 32 keys, 64 x 32, with Q from shared memory
//   largest scores of rows            -> shared memory; meet; both take the larger ones
//   P = exp2(S - maximum), 16 bits    -> shared memory, 64 x 64; meet
//   O += P V, 64 x half of the columns, with P from shared memory
//
// Q K of the next step is issued behind P V, so that the tensor cores have work while P V ends and its slot goes back.
#pragma once

#include "cuda/attention/cache_stream.cuh"
#include "cuda/attention/epilogue_rows.cuh"
#include "cuda/attention/kernel_parts.cuh"
#include "cuda/attention/lazy_softmax.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/load_shared_word.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_word.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "generated/wgmma.cuh"

namespace attune {

constexpr int kHalfKeys = kBlockN / kMlaHalves;
using MlaScores = float[kHalfKeys / 2];  // (64, kHalfKeys) over the warpgroup
using MlaOutput = float[kHeadDimV / 2];  // (64, kHeadDimV): kHeadDimV is half of what V has

// Named barriers of both consumers.
constexpr int kBarrierMaxima = 1, kBarrierP = 2;
constexpr int kMlaThreads = kMlaHalves * kWarpgroupThreads;

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

  // O of one tile, not yet divided by the row sums, and `rows`, which are those of all its keys.
  __device__ __forceinline__ void attend(const AttentionArgs& args, const PrefillTile& tile,
                                         unsigned parity, MlaOutput& o, RowStats* rows) {
    const BlockRange range =
        visible_blocks<kBlockN>(args, tile.first_row, tile.first_row + kHeadRows);
    rows->max[0] = rows->max[1] = kLowestMax;
    rows->sum[0] = rows->sum[1] = 0.f;
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] = 0.f;
    MlaScores s;
    mbarrier_wait(shared_ + kLayout.q_full, parity, "q_full");
    await_k();
    const int keys = args.seqlen_kv - tile.last_block * kBlockN;
    if (keys < kBlockN) clear_values(max(keys, 0));
    issue_qk(s);
    wgmma_wait<0>();
    wgmma_pin(s);
#pragma unroll 1
    for (int block = tile.last_block;; --block) {
      if (range.needs_mask(block)) mask(args, tile, block, s);
      float factor[2];
      softmax(args.softmax_scale_log2, s, rows, factor);
      if (block == tile.first_block)  // both have multiplied with Q
        mbarrier_arrive_if(half_ == 0 && lane() == 0, shared_ + kLayout.q_empty);
      store_p(s);
      if (__any_sync(~0u, factor[0] != 1.f || factor[1] != 1.f)) rescale(o, factor);
      fence_proxy_async();  // wgmma reads P
      named_barrier_sync(kBarrierP, kMlaThreads);
      issue_pv(o);
      const unsigned empty = k_.empty();
      k_.advance();
      if (block == tile.first_block) {
        wgmma_wait<0>();
        wgmma_pin(o);
        mbarrier_arrive_if(lane() == 0, empty);
        break;
      }
      await_k();
      issue_qk(s);
      wgmma_wait<1>();
      wgmma_pin(o);
      mbarrier_arrive_if(lane() == 0, empty);
      wgmma_wait<0>();
      wgmma_pin(s);
    }
    add_sums(rows);
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  }
  __device__ __forceinline__ void await_k() const {
    mbarrier_wait(k_.full(), k_.parity(), "k_full");
  }

  __device__ __forceinline__ void issue_qk(MlaScores& s) const {
    const unsigned own = half_ * (kHalfKeys * kPanelRowBytes / 16);
    wgmma_fence();
    mla_qk(s, wgmma_descriptor<kPanelRowBytes>(q_),
           wgmma_descriptor<kPanelRowBytes>(k_.tile() + own));
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_pv(MlaOutput& o) const {
    const unsigned own = half_ * (kHeadDimV / kPanelColumns * kPanelBytes / 16);
    wgmma_fence();
    mla_pv(o, wgmma_descriptor<kPanelRowBytes>(p_),
           wgmma_descriptor<kPanelRowBytes>(k_.tile() + own), 1);
    wgmma_commit();
  }

  // As mask_scores of wgmma_products.cuh, of this half of the keys.
  __device__ __forceinline__ void mask(const AttentionArgs& args, const PrefillTile& tile,
                                       int block, MlaScores& s) const {
    const int row = tile.first_row + thread_row(thread());
    const int origin = block * kBlockN + half_ * kHalfKeys + 2 * (lane() % 4);
    const KeyInterval<int> upper = visible_keys(args, row);
    const KeyInterval<int> lower = visible_keys(args, row + kNextRow);
    const int first[2] = {upper.first - origin, lower.first - origin};
    const int last[2] = {upper.last - origin, lower.last - origin};
#pragma unroll
    for (int i = 0; i < kHalfKeys / 2; ++i) {
      const int column = i / 4 * 8 + i % 2, half = i / 2 % 2;
      if (column > last[half] || column < first[half]) s[i] = hidden_score();
    }
  }

  __device__ __forceinline__ unsigned place_of(int region, int half, int row) const {
    return shared_ + region + (half * kWarpgroupRows + row) * 4;
  }

  __device__ __forceinline__ void softmax(float scale_log2, MlaScores& s, RowStats* rows,
                                          float (&factor)[2]) const {
    float largest[2];
    true_row_max(s, scale_log2, largest);
    const int row = accumulator_row(thread());
    if (lane() % 4 == 0) {
      store_shared_word(place_of(kMlaLayout.maxima, half_, row), __float_as_int(largest[0]));
      store_shared_word(place_of(kMlaLayout.maxima, half_, row + 8), __float_as_int(largest[1]));
    }
    named_barrier_sync(kBarrierMaxima, kMlaThreads);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      largest[i] = fmaxf(
          largest[i],
          __uint_as_float(load_shared_word(place_of(kMlaLayout.maxima, 1 - half_, row + 8 * i))));
    raise_to(largest, rows, factor);
    exponentiate(s, rows->max, scale_log2, rows->sum);
  }

  // Four 8 x 8 matrices at a time: two blocks of 8 keys, of the upper and the lower 8 rows each.
  __device__ __forceinline__ void store_p(const MlaScores& s) const {
    const int matrix = lane() / 8, row = thread() / 32 * 16 + matrix % 2 * 8 + lane() % 8;
    const unsigned to = shared_ + kMlaLayout.p + row * kPanelRowBytes;
#pragma unroll
    for (int pair = 0; pair < kHalfKeys / 16; ++pair) {
      const int chunk = half_ * (kHalfKeys / 8) + 2 * pair + matrix / 2;
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = pack<kDtypeQ>(s[8 * pair + 2 * i], s[8 * pair + 2 * i + 1]);
      stmatrix_x4(to + ((chunk ^ row % 8) << 4), words);
    }
  }

  static __device__ __forceinline__ void rescale(MlaOutput& o, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kHeadDimV / 2; ++i) o[i] *= factor[i / 2 % 2];
  }

  // What stands behind the last key may be anything, and P = 0 does not undo NaN: this warpgroup's columns of V become zero there. As K such
  // keys are hidden.
  __device__ __forceinline__ void clear_values(int keys) const {
    constexpr int kChunks = kPanelRowBytes / 16, kPanels = kHeadDimV / kPanelColumns;
    const unsigned slot = (k_.tile() & 0x3fffu) << 4;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      for (int at = keys * kChunks + thread(); at < kBlockN * kChunks; at += kWarpgroupThreads)
        store_shared_16(slot + (half_ * kPanels + panel) * kPanelBytes + at * 16, {{0, 0, 0, 0}});
    fence_proxy_async();
  }

  // Sums of rows are of all keys then.
  __device__ __forceinline__ void add_sums(RowStats* rows) const {
    const int row = accumulator_row(thread());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows->sum[i] = quad_sum(rows->sum[i]);
      if (lane() % 4 == 0)
        store_shared_word(place_of(kMlaLayout.sums, half_, row + 8 * i),
                          __float_as_int(rows->sum[i]));
    }
    named_barrier_sync(kBarrierMaxima, kMlaThreads);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float other =
          __uint_as_float(load_shared_word(place_of(kMlaLayout.sums, 1 - half_, row + 8 * i)));
      rows->sum[i] = half_ == 0 ? rows->sum[i] + other : other + rows->sum[i];
    }
  }

  unsigned shared_;
  int half_;
  unsigned q_, p_;  // low halves of descriptors
  KWalk k_;
};

}  // namespace attune
