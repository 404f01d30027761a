// SPDX-License-Identifier: Apache-2.0
// The consumer of mla_sm90 for tiles of 16 or 32 rows: one warpgroup. A wgmma has 64 rows. Here its
// rows are keys or columns of V, and its columns are rows of Q. So 16 rows of Q are not padded to
// 64. A step of 64 keys:
//
//   S^T = K Q^T       64 keys x rows, one slot at a time as slots arrive
//   softmax           per column; the warps share the keys, so they join maxima in shared memory
//   P^T               stored in shared memory, row by row
//   O^T += V^T P^T    64 columns of V x rows, panel after panel; slots are freed one by one
//
// In tile t of 8 rows, a thread holds rows 8 t + 2 (lane % 4) and the next row. Of its warp's 16
// keys, or 16 columns of V, it holds numbers lane / 4 and lane / 4 + 8.
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/mla_sm90/listed_scores.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/named_barrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma_fence.cuh"
#include "cuda/sm90/lazy_softmax.cuh"
#include "generated/wgmma.cuh"

namespace attune {

constexpr int kRowTiles = kRows / 8;
constexpr int kPanelsV = kHeadDimV / kPanelColumns;

using ScoresOfKeys = float[4 * kRowTiles];               // (64 keys, kRows) over the warpgroup
using OutputOfColumns = float[kPanelsV][4 * kRowTiles];  // (kHeadDimV, kRows)

// One value per row that a thread holds: [t][i] belongs to row 8 t + 2 (lane % 4) + i.
using OfRows = float[kRowTiles][2];

struct ColumnStats {
  OfRows max;  // as in RowStats
  OfRows sum;
};

class KeysFirstConsumer {
  using KWalk = SlotWalk<kLayout.k_slots, kLayout.k_slot_bytes>;
  static constexpr unsigned kPanelBytes = kBlockN * kPanelRowBytes;
  static constexpr int kSlots = kMlaLayout.slots_of_step;
  static constexpr int kWarps = kWarpgroupThreads / 32;

 public:
  __device__ __forceinline__ explicit KeysFirstConsumer(unsigned shared)
      : shared_(shared),
        q_(wgmma_descriptor_low(shared + kLayout.q, 0)),
        p_(wgmma_descriptor_low(shared + kMlaLayout.p, 0)),
        k_(shared + kLayout.k_full, wgmma_descriptor_low(shared + kLayout.k, kPanelBytes)) {}

  // Computes O of one tile, not yet divided by the row sums. `stats` gets the maxima and sums over
  // all keys of the tile; all threads that hold a row get the same. `scale_log2` multiplies scores.
  __device__ __forceinline__ void attend(const AttentionArgs& args, float scale_log2,
                                         const PrefillTile& tile, unsigned parity,
                                         OutputOfColumns& o, ColumnStats* stats) {
    const BlockRange range =
        visible_blocks<kBlockN>(args, tile.first_row, tile.first_row + kHeadRows);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
      for (int i = 0; i < 2; ++i) {
        stats->max[t][i] = kLowestMax;
        stats->sum[t][i] = 0.f;
      }
#pragma unroll
    for (int panel = 0; panel < kPanelsV; ++panel) {
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) o[panel][i] = 0.f;
      wgmma_pin(o[panel]);
    }
    mbarrier_wait(shared_ + kLayout.q_full, parity, "q_full");
    const int keys = args.seqlen_kv - tile.last_block * kBlockN;
    if (!kGathersKeys && keys < kBlockN) clear_values(max(keys, 0));
#pragma unroll 1
    for (int block = tile.last_block; block >= tile.first_block; --block) {
      ScoresOfKeys s;
      multiply_qk(s);
      if (block == tile.first_block)
        mbarrier_arrive_if(lane() == 0, shared_ + kLayout.q_empty);  // Q is read no more
      if constexpr (kKeyLists)
        hide_unlisted_rows(shared_, k_.full(), warp() * 16 + lane() / 4, s);
      else if (range.needs_mask(block))
        mask(args, tile, block, s);
      soften(scale_log2, s, o, stats);
      multiply_pv(o);
    }
    add_sums(stats);
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  static __device__ __forceinline__ void meet() {
    named_barrier_sync(kBarrierWarpgroup, kWarpgroupThreads);
  }

  __device__ __forceinline__ void multiply_qk(ScoresOfKeys& s) const {
    constexpr unsigned kSlotOfQ = kMlaSlotPanels * kRows * kPanelRowBytes / 16;
    KWalk at = k_;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      mbarrier_wait(at.full(), at.parity(), "k_full");
      see_copied_keys();
      wgmma_fence();
      const auto k = wgmma_descriptor<kPanelRowBytes>(at.tile());
      const auto q = wgmma_descriptor<kPanelRowBytes>(q_ + slot * kSlotOfQ);
      if (slot + 1 < kSlots)
        mla_qk(s, k, q, slot);
      else
        mla_qk_last(s, k, q, slot);
      wgmma_commit();
      at.advance();
    }
    wgmma_wait<0>();
    wgmma_pin(s);
  }

  // Turns scores into weights, stores them in shared memory, and rescales sums and O to the new
  // maxima.
  __device__ __forceinline__ void soften(float scale_log2, ScoresOfKeys& s, OutputOfColumns& o,
                                         ColumnStats* stats) const {
    OfRows largest;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) largest[t][i] = fmaxf(s[4 * t + i], s[4 * t + 2 + i]);
    over_warps(kMlaLayout.maxima, largest, [](float a, float b) { return fmaxf(a, b); });
    OfRows factor;
    bool raised = false;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float max = fmaxf(largest[t][i] * scale_log2, stats->max[t][i]);
        factor[t][i] = exp2_approx(stats->max[t][i] - max);
        raised |= factor[t][i] != 1.f;
        stats->max[t][i] = max;
        s[4 * t + i] = exp2_approx(fmaf(s[4 * t + i], scale_log2, -max));
        s[4 * t + 2 + i] = exp2_approx(fmaf(s[4 * t + 2 + i], scale_log2, -max));
        stats->sum[t][i] = stats->sum[t][i] * factor[t][i] + (s[4 * t + i] + s[4 * t + 2 + i]);
      }
    store_p(s);
    fence_proxy_async();  // wgmma reads P
    if (__any_sync(~0u, raised)) {
#pragma unroll
      for (int panel = 0; panel < kPanelsV; ++panel)
#pragma unroll
        for (int i = 0; i < 4 * kRowTiles; ++i) o[panel][i] *= factor[i / 4][i % 2];
    }
    meet();
  }

  // Joins the values of each row over all keys: first over the lanes that hold the row, then over
  // the warps, through a region of shared memory. All threads of the warpgroup wait for each other
  // in it.
  template <class Join>
  __device__ __forceinline__ void over_warps(int region, OfRows& values, Join join) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
          values[t][i] = join(values[t][i], __shfl_xor_sync(~0u, values[t][i], step));
    const unsigned own = shared_ + region + lane() % 4 * 8;
    if (lane() < 4) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          store_shared_word(own + (warp() * kRows + 8 * t + i) * 4, __float_as_int(values[t][i]));
    }
    meet();
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      load_shared_pair(own + 8 * t * 4, &values[t][0], &values[t][1]);
#pragma unroll
      for (int other = 1; other < kWarps; ++other) {
        float first, second;
        load_shared_pair(own + (other * kRows + 8 * t) * 4, &first, &second);
        values[t][0] = join(values[t][0], first);
        values[t][1] = join(values[t][1], second);
      }
    }
  }

  // Stores this warp's 16 keys of P: two chunks of 16 bytes in each row.
  __device__ __forceinline__ void store_p(const ScoresOfKeys& s) const {
    const int matrix = lane() / 8, chunk = 2 * warp() + matrix % 2;
#pragma unroll
    for (int pair = 0; pair < kRowTiles / 2; ++pair) {
      const int row = 16 * pair + matrix / 2 * 8 + lane() % 8;
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = pack<kDtypeQ>(s[8 * pair + 2 * i], s[8 * pair + 2 * i + 1]);
      stmatrix_x4_transposed(
          shared_ + kMlaLayout.p + row * kPanelRowBytes + ((chunk ^ row % 8) << 4), words);
    }
  }

  __device__ __forceinline__ void multiply_pv(OutputOfColumns& o) {
    const auto p = wgmma_descriptor<kPanelRowBytes>(p_);
    unsigned empty[kSlots];
    wgmma_fence();
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
      for (int panel = slot * kMlaSlotPanels; panel < (slot + 1) * kMlaSlotPanels; ++panel)
        if (panel < kPanelsV)
          mla_pv(o[panel],
                 wgmma_descriptor<kPanelRowBytes>(k_.tile() +
                                                  panel % kMlaSlotPanels * (kPanelBytes / 16)),
                 p, 1);
      wgmma_commit();
      empty[slot] = k_.empty();
      k_.advance();
    }
    give_back<0>(empty);
#pragma unroll
    for (int panel = 0; panel < kPanelsV; ++panel) wgmma_pin(o[panel]);
  }

  // Frees each slot when the products that read it are done.
  template <int kSlot>
  __device__ __forceinline__ void give_back(const unsigned (&empty)[kSlots]) const {
    if constexpr (kSlot < kSlots) {
      wgmma_wait<kSlots - 1 - kSlot>();
      mbarrier_arrive_if(lane() == 0, empty[kSlot]);
      give_back<kSlot + 1>(empty);
    }
  }

  // Masks scores like mask_scores in wgmma_products.cuh.
  __device__ __forceinline__ void mask(const AttentionArgs& args, const PrefillTile& tile,
                                       int block, ScoresOfKeys& s) const {
    const int key = block * kBlockN + warp() * 16 + lane() / 4;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = 8 * t + lane() % 4 * 2 + i;
        const KeyInterval<int> keys = visible_keys(args, tile.first_row + row % kHeadRows);
        if (key < keys.first || key > keys.last) s[4 * t + i] = hidden_score();
        if (key + 8 < keys.first || key + 8 > keys.last) s[4 * t + 2 + i] = hidden_score();
      }
  }

  // Clears V past the last key, for the reason given in MlaConsumer.
  __device__ __forceinline__ void clear_values(int keys) const {
    constexpr int kChunks = kPanelRowBytes / 16;
    KWalk at = k_;
#pragma unroll 1
    for (int slot = 0; slot < kSlots; ++slot, at.advance()) {
      mbarrier_wait(at.full(), at.parity(), "k_full");
      const unsigned to = (at.tile() & 0x3fffu) << 4;
      const int panels = min(kMlaSlotPanels, kPanelsV - slot * kMlaSlotPanels);
#pragma unroll 1
      for (int panel = 0; panel < panels; ++panel)
        for (int word = keys * kChunks + static_cast<int>(threadIdx.x) % kWarpgroupThreads;
             word < kBlockN * kChunks; word += kWarpgroupThreads)
          store_shared_16(to + panel * kPanelBytes + word * 16, {{0, 0, 0, 0}});
    }
    fence_proxy_async();
    meet();
  }

  __device__ __forceinline__ void add_sums(ColumnStats* stats) const {
    over_warps(kMlaLayout.sums, stats->sum, [](float a, float b) { return a + b; });
  }

  unsigned shared_;
  unsigned q_, p_;  // low halves of descriptors
  KWalk k_;
};

}  // namespace attune
