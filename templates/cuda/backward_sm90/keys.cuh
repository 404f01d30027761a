// SPDX-License-Identifier: Apache-2.0
// Makes dK and dV of a tile of keys, in backward_sm90 and backward_sm90_one_kernel. Rows of K and V
// stay in shared memory. Q and dout of all heads of the group stream, or of a part of the heads
// (head_parts.cuh). So no other block adds to the same gradients, or sums. Per step of kKeyBlockM
// queries, in each warpgroup of 64 keys, with c = softmax_scale log2(e) and L2 = lse log2(e):
//   S^T = K Q^T,  P^T = exp2(S^T c - L2),  dP^T = V dout^T,  dV += P^T dout,
//   dS^T = P^T (dP^T - delta),  dK += dS^T Q
// P^T and dS^T are rounded in registers: rounded accumulators are the A operands of the next
// products. The product dS^T Q of a step is issued after S^T of the next step.
#pragma once

#include "cuda/backward_sm90/keys_dropout.cuh"  // where kDropout, else none/
#include "cuda/backward_sm90/keys_tiles.cuh"
#include "cuda/backward_sm90/step_statistics.cuh"
#include "cuda/backward_sm90/store_gradient.cuh"
#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/special_functions.cuh"

#include "generated/wgmma.cuh"

namespace attune {

static_assert(kQSlots >= 2, "a step takes its tile before it gives back that of the step before");

// Layout and rings of a kernel that makes dK (kMakesK), or of one that makes dV alone.
template <bool kMakesK>
constexpr BackwardSm90Layout kKeysLayout = backward_sm90_layout({kKeyBlockN, kKeyBlockM, kQSlots,
                                                                 kDoutSlots, kHeadDimQk, kHeadDimV,
                                                                 kMakesK, true, kDsSlots});
template <bool kMakesK>
constexpr BackwardSm90Ring kQRing = kKeysLayout<kMakesK>.first_ring;
template <bool kMakesK>
constexpr BackwardSm90Ring kDoutRing = kKeysLayout<kMakesK>.second_ring;
constexpr PrefillSm90Registers kKeysRegisters =
    backward_sm90_registers(kKeyBlockN / kWarpgroupRows);

// The tensor maps of a kernel. Maps that it does not use are null.
struct KeysMaps {
  const TensorMap* q;
  const TensorMap* k;
  const TensorMap* v;
  const TensorMap* dout;
  const TensorMap* dk;
  const TensorMap* dv;
};

template <class Ring>
__device__ __forceinline__ void stream_sums(Ring& ring, const float* sums) {
  const unsigned full = ring.await_free();
  mbarrier_arrive_expect_tx(full, 4 * kKeyBlockM);
  bulk_load(ring.statistics(), sums, 4 * kKeyBlockM, full);
  ring.advance();
}

// Streams row sums, in another warp than produce_rows: one thread has too few registers for both.
template <bool kMakesK, class Tiles = TileNumbers>
__device__ __forceinline__ void produce_sums(const AttentionArgs& args, unsigned shared,
                                             Tiles tiles = {}) {
  TileRing<kQRing<kMakesK>> q(shared);
  TileRing<kDoutRing<kMakesK>> dout(shared);
#pragma unroll 1
  for (; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    each_step(tile, [&](int head, int row) {
      const AttentionArgs here = reread(args);
      const float* const sums = row_sums(here, tile.batch, head) + row;
      stream_sums(q, sums);
      stream_sums(dout, sums + padded_rows(here));
    });
  }
}

// Loads the operands that stay during a tile: K, and V if dK is made. `parity`: phase parity of
// their barriers.
template <bool kMakesK>
__device__ __forceinline__ void load_keys(unsigned shared, const KeysMaps& maps,
                                          const KeysTile& tile, unsigned parity) {
  constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  load_staying<kLayout.panels_qk, kLayout.warpgroups>(
      shared + kLayout.first, kLayout.first_bytes, *maps.k, shared + kLayout.first_full,
      shared + kLayout.first_empty, parity, tile.first_key, tile.head, tile.batch);
  if constexpr (kMakesK)
    load_staying<kLayout.panels_v, kLayout.warpgroups>(
        shared + kLayout.second, kLayout.second_bytes, *maps.v, shared + kLayout.second_full,
        shared + kLayout.second_empty, parity, tile.first_key, tile.head, tile.batch);
}

// Streams Q and dout of the tile's steps.
template <bool kMakesK, class FirstRing, class SecondRing>
__device__ __forceinline__ void stream_rows(FirstRing& q, SecondRing& dout, const KeysMaps& maps,
                                            const KeysTile& tile) {
  constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  each_step(tile, [&](int head, int row) {
    stream_tile<kLayout.panels_qk>(q, *maps.q, row, head, tile.batch);
    stream_tile<kLayout.panels_v>(dout, *maps.dout, row, head, tile.batch);
  });
}

template <bool kMakesK, class Tiles = TileNumbers>
__device__ __forceinline__ void produce_rows(const AttentionArgs& args, unsigned shared,
                                             const KeysMaps& maps, Tiles tiles = {}) {
  TileRing<kQRing<kMakesK>> q(shared);
  TileRing<kDoutRing<kMakesK>> dout(shared);
#pragma unroll 1
  for (; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    load_keys<kMakesK>(shared, maps, tile, tiles.parity());
    stream_rows<kMakesK>(q, dout, maps, tile);
  }
}

// The keeper of dS of a kernel that needs dS in registers alone. The other one writes dS to shared
// memory for another warpgroup (one_kernel/beside_dq_warpgroup.cuh).
struct NoKeeper {
  static constexpr bool kKeeps = false;
  __device__ __forceinline__ static void await_turn() {}
  __device__ __forceinline__ static void end_turn() {}
  template <class Ds>
  __device__ __forceinline__ static void keep(const Ds&) {}
};

template <bool kMakesK, bool kMakesV, class Keeper = NoKeeper>
class KeysConsumer : protected Keeper {
 protected:
  static constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  // Early loads delay the other warpgroup's exponentials: not in turns.
  static constexpr EarlyPairs kEarly =
      Keeper::kKeeps
          ? EarlyPairs{}
          : backward_early(kKeyBlockM, (kMakesK ? kHeadDimQk : 0) + (kMakesV ? kHeadDimV : 0),
                           KeysDropout::kRegisters);
  static constexpr int kPairs = kKeyBlockM / 4;
  using Scores = float[kKeyBlockM / 2];
  using Rounded = unsigned[kPairs];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

 public:
  __device__ __forceinline__ KeysConsumer(const AttentionArgs& args, const KeysDropout& dropout,
                                          unsigned shared, int warpgroup)
      : args_(args),
        q_ring_(shared),
        dout_ring_(shared),
        first_full_(shared + kLayout.first_full + 8 * warpgroup),
        k_(by_rows(shared + kLayout.first + warpgroup * kLayout.first_bytes)),
        v_(by_rows(shared + kLayout.second + warpgroup * kLayout.second_bytes)),
        dropout_(dropout) {}

  // Makes dK, without softmax_scale, and dV of a tile. `parity`: phase parity of the barriers of K
  // and V.
  __device__ __forceinline__ void run(const KeysTile& tile, int first_key, unsigned parity, Dk& dk,
                                      Dv& dv) {
    first_key_ = first_key;
    // If only some keys of the warpgroup are past the end, they count as keys: their gradients are
    // not stored.
    blocks_ = row_blocks<kKeyBlockM>(
        args_, first_key, first_key < args_.seqlen_kv ? first_key + kWarpgroupRows : first_key);
    const OwnBlocks own = own_blocks(tile.blocks, blocks_);
    if constexpr (kMakesK) clear(dk);
    if constexpr (kMakesV) clear(dv);
    mbarrier_wait(first_full_, parity, "k_full");
    if constexpr (kMakesK)
      mbarrier_wait(first_full_ + kLayout.second_full - kLayout.first_full, parity, "v_full");
#pragma unroll 1
    for (int head = 0; head < tile.heads; ++head) {
      dropout_.begin(args_, tile.batch, tile.head * kGqaRatio + tile.head_begin + head, first_key);
      skip_steps(q_ring_, dout_ring_, own.begin - tile.blocks.begin);
      run_head(own, dk, dv);
      skip_steps(q_ring_, dout_ring_, tile.blocks.end - own.end);
    }
    if constexpr (kMakesV) dropout_.scale_kept(dv);
    if constexpr (kMakesK) dropout_.scale_kept(dk);
  }

 protected:
  __device__ __forceinline__ void run_head(const OwnBlocks& own, Dk& dk, Dv& dv) {
    if (own.begin >= own.end) return;
    Rounded ds;
    step<true>(own.begin, ds, dk, dv);
#pragma unroll 1
    for (int block = own.begin + 1; block < own.end; ++block) step<false>(block, ds, dk, dv);
    if constexpr (kMakesK) {
      wgmma_fence();
      issue_previous_dk(ds, dk);
      wgmma_wait<0>();
      wgmma_pin(dk);
      give_back(q_);
    }
  }

  // Issues dK += dS^T Q of the preceding step. Kernels with one_kernel/half_dq.cuh call
  // WholeSteps::issue_dk instead. The products of dK and dV are templates: a kernel without dK, or
  // dV, has no such wgmma.
  template <class Gradient>
  __device__ __forceinline__ void issue_previous_dk(const Rounded& ds, Gradient& dk) {
    wgmma_ds_q(dk, ds, by_columns<kKeyBlockM>(q_.tile), 1);
    wgmma_commit();
  }

  template <bool kFirst>
  __device__ __forceinline__ void step(int block, Rounded& ds, Dk& dk, Dv& dv) {
    Scores s, dp;
    const unsigned l2_at = q_ring_.statistics();
    const RingSlot q = q_ring_.take();
    wgmma_fence();
    wgmma_k_q(s, k_, by_rows(q.tile));
    wgmma_commit();
    if constexpr (kMakesK && !kFirst) issue_previous_dk(ds, dk);
    StepStatistics<kEarly.l2> l2(l2_at);
    const unsigned delta_at = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    if constexpr (kMakesK) issue_dp(dout, dp);
    wgmma_wait<(kMakesK ? (kFirst ? 1 : 2) : 0)>();
    wgmma_pin(s);
    dropout_.make(block);
    Keeper::await_turn();
    exponentiate(l2, s);
    if (blocks_.needs_mask(block)) hide(block, s);
    Keeper::end_turn();
    if constexpr (kMakesK && !kFirst) {
      wgmma_wait<1>();
      wgmma_pin(dk);
      give_back(q_);
    }
    if constexpr (!kMakesK) give_back_loaded(q);
    Rounded p;
    if constexpr (kMakesV) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) p[i] = pack<kDtypeQ>(s[2 * i], s[2 * i + 1]);
      dropout_.keep(p);
      wgmma_fence();
      issue_dv(p, dout, dv);
    }
    if constexpr (kMakesK) {
      StepStatistics<kEarly.delta_beside_p> delta(delta_at);
      wgmma_wait<(kMakesV ? 1 : 0)>();
      wgmma_pin(dp);
      differentiate(delta, s, dp, ds);
      Keeper::keep(ds);
    }
    if constexpr (kMakesV) {
      wgmma_wait<0>();
      wgmma_pin(dv);
    }
    if constexpr (kMakesK && !Keeper::kKeeps)
      give_back_loaded(dout);
    else
      give_back(dout);  // if dS was kept, the loads ended then
    q_ = q;
  }

  template <class Products>
  __device__ __forceinline__ void issue_dp(const RingSlot& dout, Products& dp) {
    wgmma_v_dout(dp, v_, by_rows(dout.tile));
    wgmma_commit();
  }

  template <class Gradient>
  __device__ __forceinline__ void issue_dv(const Rounded& p, const RingSlot& dout, Gradient& dv) {
    wgmma_p_dout(dv, p, by_columns<kKeyBlockM>(dout.tile), 1);
    wgmma_commit();
  }

  template <int kLoaded>
  __device__ __forceinline__ void exponentiate(StepStatistics<kLoaded>& l2, Scores& s) const {
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; i += 4) {
      l2.load_late(i / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        s[i + j] = exp2_approx(s[i + j] * args_.softmax_scale_log2 - l2.of(i / 4, j % 2));
    }
  }

  // Computes dS of kCount columns from kFrom on.
  template <int kFrom = 0, int kLoaded, int kCount>
  __device__ __forceinline__ void differentiate(StepStatistics<kLoaded>& delta, const Scores& p,
                                                const float (&dp)[kCount],
                                                unsigned (&ds)[kCount / 2]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const int block8 = (kFrom + i) / 4;
      delta.load_late(block8);
      const float of[2] = {delta.of(block8, 0), delta.of(block8, 1)};
#pragma unroll
      for (int j = i; j < i + 4; j += 2)
        ds[j / 2] =
            pack<kDtypeQ>(p[kFrom + j] * (dropout_.kept(dp[j], kFrom + j) - of[0]),
                          p[kFrom + j + 1] * (dropout_.kept(dp[j + 1], kFrom + j + 1) - of[1]));
    }
  }

  // Sets elements that the mask hides to `hidden`.
  __device__ __forceinline__ void hide(int block, Scores& p, float hidden = 0.f) const {
    const int key = first_key_ + first_accumulator_row();
    const int origin = block * kKeyBlockM + reread_thread_index() % 4 * 2;
    const RowInterval rows[2] = {visible_rows(CompiledRule(), args_, key),
                                 visible_rows(CompiledRule(), args_, key + 8)};
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; ++i) {
      const int row = origin + i / 4 * 8 + i % 2;
      if (row < rows[i / 2 % 2].first || row > rows[i / 2 % 2].last) p[i] = hidden;
    }
    if constexpr (Keeper::kKeeps) hide_missing(p);
  }

  // Sets elements of keys past the end to `hidden`. dQ sums over these keys: K is zero there, and P
  // may be inf.
  __device__ __forceinline__ void hide_missing(Scores& p, float hidden = 0.f) const {
    const int keys = args_.seqlen_kv - first_key_ - first_accumulator_row();
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; ++i)
      if (i / 2 % 2 * 8 >= keys) p[i] = hidden;
  }

  const AttentionArgs& args_;
  TileRing<kQRing<kMakesK>> q_ring_;
  TileRing<kDoutRing<kMakesK>> dout_ring_;
  unsigned first_full_;       // barrier of K
  unsigned long long k_, v_;  // descriptors
  int first_key_;             // first key of the warpgroup
  BlockRange blocks_;
  KeysDropout dropout_;  // if it is empty and comes first, registers change
  RingSlot q_{};         // slot of the step before; its product with dS is not issued yet
};

}  // namespace attune
