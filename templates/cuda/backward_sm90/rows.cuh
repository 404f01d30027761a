// SPDX-License-Identifier: Apache-2.0
// Makes dQ of a tile of rows, in backward_sm90 and backward_sm90_stored. Rows of Q and dout stay in
// shared memory; K and V stream. Per step of kBlockN keys, in each warpgroup of 64 rows:
//   S = Q K^T,  P = exp2(S c - L2),  dP = dout V^T,
//   dS = P (dP - delta), rounded in registers,  dQ += dS K
// The product dS K of a step is issued after S of the next step, so that two products run during
// exponentials.
//
// Types that the kernel chooses:
//   Heads  the heads of a launch, and whether scores are stored: AllHeads, HeadsOfRound
//   Sums   makes L2 and delta, where attune_prepare does not: OwnSums
#pragma once

#include "cuda/backward_sm90/all_heads.cuh"
#include "cuda/backward_sm90/rows_dropout.cuh"  // where kDropout, else none/
#include "cuda/backward_sm90/store_gradient.cuh"
#include "cuda/backward_sm90/tile_ring.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/ptx/special_functions.cuh"

#include "generated/wgmma.cuh"

namespace attune {

static_assert(kBlockM % kWarpgroupRows == 0, "tiles that stay have 64 rows a warpgroup");
static_assert(kBlockN % 16 == 0, "a step has whole 16s of keys");
static_assert(kKSlots >= 2, "a step takes its tile before it gives back that of the step before");

constexpr BackwardSm90Layout kRowsLayout =
    backward_sm90_layout({kBlockM, kBlockN, kKSlots, kVSlots, kHeadDimQk, kHeadDimV, true, false});
constexpr int kRowsThreads = (kRowsLayout.warpgroups + 1) * kWarpgroupThreads;
constexpr BackwardSm90Ring kKRing = kRowsLayout.first_ring;
constexpr BackwardSm90Ring kVRing = kRowsLayout.second_ring;
constexpr PrefillSm90Registers kRowsRegisters = backward_sm90_registers(kRowsLayout.warpgroups);

// The tensor maps of the kernel.
struct RowsMaps {
  const TensorMap* q;
  const TensorMap* k;
  const TensorMap* v;
  const TensorMap* dout;
  const TensorMap* dq;
};

// A tile of queries and the blocks of keys that it sees.
struct RowsTile {
  int first_row;
  int head;
  int batch;
  BlockRange blocks;
};

template <class Heads>
__device__ __forceinline__ RowsTile rows_tile(const AttentionArgs& all, const Heads& heads,
                                              int number) {
  const AttentionArgs args = reread(all);
  const int blocks = (args.seqlen_q + kBlockM - 1) / kBlockM;
  const int keys = args.seqlen_kv / kGqaRatio;  // keys for each head of the group
  const TilePlace place =
      heads.place(number, blocks, kGqaRatio, args.num_heads_q, args.batch, keys);
  const int first = (kIsCausal ? blocks - 1 - place.block : place.block) * kBlockM;
  return {first, place.head, place.batch,
          visible_blocks<kBlockN>(args, first, min(first + kBlockM, args.seqlen_q))};
}

// Streams a tile of kPanels panels.
template <int kPanels, class Ring>
__device__ __forceinline__ void stream_keys(Ring& ring, const TensorMap& map, int key, int head,
                                            int batch) {
  const unsigned full = ring.await_free();
  mbarrier_arrive_expect_tx(full, kPanels * kBlockN * kPanelRowBytes);
  load_tile<kPanels, kBlockN>(ring.tile(), map, full, key, head, batch);
  ring.advance();
}

template <class Heads>
__device__ __forceinline__ void produce_keys(const AttentionArgs& args, const Heads& heads,
                                             unsigned shared, const RowsMaps& maps) {
  constexpr auto& kLayout = kRowsLayout;
  TileRing<kKRing> k(shared);
  TileRing<kVRing> v(shared);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const RowsTile tile = rows_tile(args, heads, tiles.number());
    const int kv_head = tile.head / kGqaRatio;
    int block = tile.blocks.begin;
    // Streams K of the first step ahead of Q and dout, while warpgroups end the tile before.
    if (block < tile.blocks.end)
      stream_keys<kLayout.panels_qk>(k, *maps.k, block * kBlockN, kv_head, tile.batch);
    load_staying<kLayout.panels_qk, kLayout.warpgroups>(
        shared + kLayout.first, kLayout.first_bytes, *maps.q, shared + kLayout.first_full,
        shared + kLayout.first_empty, tiles.parity(), tile.first_row, tile.head, tile.batch);
    load_staying<kLayout.panels_v, kLayout.warpgroups>(
        shared + kLayout.second, kLayout.second_bytes, *maps.dout, shared + kLayout.second_full,
        shared + kLayout.second_empty, tiles.parity(), tile.first_row, tile.head, tile.batch);
#pragma unroll 1
    while (block < tile.blocks.end) {
      stream_keys<kLayout.panels_v>(v, *maps.v, block * kBlockN, kv_head, tile.batch);
      if (++block < tile.blocks.end)
        stream_keys<kLayout.panels_qk>(k, *maps.k, block * kBlockN, kv_head, tile.batch);
    }
  }
}

template <class Sums, class Heads, class Gradients>
class RowsConsumer {
 public:
  __device__ __forceinline__ RowsConsumer(const AttentionArgs& args, const Heads& heads,
                                          const RowsDropout& dropout, const Gradients& gradients,
                                          unsigned shared, int warpgroup)
      : args_(args),
        heads_(heads),
        dropout_(dropout),
        gradients_(gradients),
        k_ring_(shared),
        v_ring_(shared),
        first_full_(shared + kRowsLayout.first_full + 8 * warpgroup),
        q_(by_rows(shared + kRowsLayout.first + warpgroup * kRowsLayout.first_bytes)),
        dout_(by_rows(shared + kRowsLayout.second + warpgroup * kRowsLayout.second_bytes)) {}

  // Makes dQ of a tile, without softmax_scale. `parity`: phase parity of the barriers of Q and
  // dout.
  __device__ __forceinline__ void run(const RowsTile& tile, int first_row, unsigned parity,
                                      float (&dq)[kHeadDimQk / 2]) {
    first_row_ = first_row;
    // If only some rows of the warpgroup are past seqlen_q, they count as rows: their L2 is
    // infinity, so their P is zero.
    blocks_ = visible_blocks<kBlockN>(
        args_, first_row, first_row < args_.seqlen_q ? first_row + kWarpgroupRows : first_row);
    const OwnBlocks own = own_blocks(tile.blocks, blocks_);
    panels_.begin(args_, heads_, tile.batch, tile.head, first_row);
    panels_.clear_rest(own.begin, own.end);
    if constexpr (Sums::kMakes) {
      Sums sums(args_, gradients_, tile.batch, tile.head, first_row);
      wait_dout(parity);
      sums.finish(dout_, l2_, delta_);
      dropout_.take_part(delta_);
      sums.keep(args_, tile.first_row + kBlockM, l2_, delta_);
    } else {
      load_sums(tile);
    }
    dropout_.begin(args_, tile.batch, tile.head, first_row);
    clear(dq);
    mbarrier_wait(first_full_, parity, "q_full");
    skip_steps(k_ring_, v_ring_, own.begin - tile.blocks.begin);
    if (own.begin < own.end) {
      unsigned ds[kBlockN / 4];
      step<true>(own.begin, ds, dq, parity);
#pragma unroll 1
      for (int block = own.begin + 1; block < own.end; ++block) step<false>(block, ds, dq, parity);
      wgmma_fence();
      issue_dq(ds, dq);
      panels_.write_ds(own.end - 1, ds);
      wgmma_wait<0>();
      wgmma_pin(dq);
      give_back(k_);
    } else {
      wait_dout(parity);  // dout must arrive before dQ is written over the tiles that stay
    }
    skip_steps(k_ring_, v_ring_, tile.blocks.end - own.end);
    dropout_.scale_kept(dq);
  }

 private:
  // Loads the sums that attune_prepare has made.
  __device__ __forceinline__ void load_sums(const RowsTile& tile) {
    const float* const sums = row_sums(args_, tile.batch, tile.head);
    const int rows = padded_rows(args_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row_ + first_accumulator_row() + 8 * half;
      l2_[half] = sums[row];
      delta_[half] = sums[rows + row];
    }
  }

  __device__ __forceinline__ void wait_dout(unsigned parity) const {
    mbarrier_wait(first_full_ + kRowsLayout.second_full - kRowsLayout.first_full, parity,
                  "dout_full");
  }

  __device__ __forceinline__ void issue_dq(const unsigned (&ds)[kBlockN / 4],
                                           float (&dq)[kHeadDimQk / 2]) {
    wgmma_ds_k(dq, ds, by_columns<kBlockN>(k_.tile), 1);
    wgmma_commit();
  }

  template <bool kFirst>
  __device__ __forceinline__ void step(int block, unsigned (&ds)[kBlockN / 4],
                                       float (&dq)[kHeadDimQk / 2], unsigned parity) {
    float s[kBlockN / 2], dp[kBlockN / 2];
    const RingSlot k = k_ring_.take();
    wgmma_fence();
    wgmma_q_k(s, q_, by_rows(k.tile));
    wgmma_commit();
    if constexpr (kFirst)
      wait_dout(parity);
    else
      issue_dq(ds, dq);
    const RingSlot v = v_ring_.take();
    wgmma_dout_v(dp, dout_, by_rows(v.tile));
    wgmma_commit();
    if constexpr (!kFirst) panels_.write_ds(block - 1, ds);
    wgmma_wait<kFirst ? 1 : 2>();
    wgmma_pin(s);
    dropout_.make(block);
    exponentiate(s);
    if (blocks_.needs_mask(block)) hide(block, s);
    panels_.write_p(block, s, dropout_);
    if constexpr (!kFirst) {
      wgmma_wait<1>();
      wgmma_pin(dq);
      give_back(k_);
    }
    wgmma_wait<0>();
    wgmma_pin(dp);
    give_back(v);
#pragma unroll
    for (int i = 0; i < kBlockN / 2; i += 2)
      ds[i / 2] = pack<kDtypeQ>(s[i] * (dropout_.kept(dp[i], i) - delta_[i / 2 % 2]),
                                s[i + 1] * (dropout_.kept(dp[i + 1], i + 1) - delta_[i / 2 % 2]));
    k_ = k;
  }

  __device__ __forceinline__ void exponentiate(float (&s)[kBlockN / 2]) const {
#pragma unroll
    for (int i = 0; i < kBlockN / 2; ++i)
      s[i] = exp2_approx(s[i] * args_.softmax_scale_log2 - l2_[i / 2 % 2]);
  }

  // Sets P to zero for unseen keys, and for keys past the end: K is zero there, and P may be inf.
  __device__ __forceinline__ void hide(int block, float (&p)[kBlockN / 2]) const {
    const int row = first_row_ + first_accumulator_row();
    const int origin = block * kBlockN + static_cast<int>(threadIdx.x) % 4 * 2;
    const KeyInterval<int> keys[2] = {visible_keys(args_, row), visible_keys(args_, row + 8)};
#pragma unroll
    for (int i = 0; i < kBlockN / 2; ++i)
      if (!keys[i / 2 % 2].contains(origin + i / 4 * 8 + i % 2)) p[i] = 0.f;
  }

  const AttentionArgs& args_;
  const Heads& heads_;
  typename Heads::Panels panels_;
  RowsDropout dropout_;
  const Gradients& gradients_;
  TileRing<kKRing> k_ring_;
  TileRing<kVRing> v_ring_;
  unsigned first_full_;          // barrier of Q
  unsigned long long q_, dout_;  // descriptors
  int first_row_;                // first row of the warpgroup
  BlockRange blocks_;
  float l2_[2], delta_[2];
  RingSlot k_{};  // slot of the step before; its product with dS is not issued yet
};

template <class Sums, class Heads, class Gradients>
__device__ __forceinline__ void consume_keys(const AttentionArgs& args, const Heads& heads,
                                             const RowsDropout& dropout, const Gradients& gradients,
                                             unsigned shared, int warpgroup,
                                             const TensorMap& map_dq) {
  constexpr auto& kLayout = kRowsLayout;
  RowsConsumer<Sums, Heads, Gradients> consumer(args, heads, dropout, gradients, shared, warpgroup);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const RowsTile tile = rows_tile(args, heads, tiles.number());
    const int first_row = tile.first_row + warpgroup * kWarpgroupRows;
    float dq[kHeadDimQk / 2];
    consumer.run(tile, first_row, tiles.parity(), dq);
    store_gradient<kDtypeQ>(map_dq, shared + kLayout.first + warpgroup * kLayout.first_bytes,
                            warpgroup, {0, first_row, tile.head, tile.batch}, args.softmax_scale,
                            dq);
    if (threadIdx.x % kWarpgroupThreads == 0) {
      mbarrier_arrive(shared + kLayout.second_empty + 8 * warpgroup);
      tma_store_wait_read();
      mbarrier_arrive(shared + kLayout.first_empty + 8 * warpgroup);
    }
  }
  if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

template <class Sums, class Heads, class Gradients>
__device__ __forceinline__ void run_rows(const AttentionArgs& args, const Heads& heads,
                                         const RowsDropout& dropout, const Gradients& gradients,
                                         const RowsMaps& maps) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  init_barriers(shared, kRowsLayout);
  wait_for_prior_grid();
  let_next_grid_start();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (warpgroup < 0) {
    if constexpr (kRowsRegisters.moved) register_decrease<kRowsRegisters.producer>();
    if (threadIdx.x == 0) produce_keys(args, heads, shared, maps);
  } else {
    if constexpr (kRowsRegisters.moved) register_increase<kRowsRegisters.consumer>();
    consume_keys<Sums>(args, heads, dropout, gradients, shared, warpgroup, *maps.dq);
  }
}

}  // namespace attune
