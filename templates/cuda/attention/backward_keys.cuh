// SPDX-License-Identifier: Apache-2.0
// dK and dV of backward_sm90: rows of K and V stay, Q and dout of all heads of the group stream, so that no other block adds to the
// same gradients. Per step of kKeyBlockM queries, in each warpgroup of 64 keys:
//   S^T = K Q^T,  P^T = exp2(S^T c - L2),  dP^T = V dout^T,  dV += P^T dout,  dS^T = P^T (dP^T - delta),  dK += dS^T Q
// P^T and dS^T are rounded where they are: accumulators are, rounded, A operands of the next products. The product of a step's dS^T
// is issued behind S^T of the step after it.
#pragma once

#include "cuda/attention/backward_store.cuh"
#include "cuda/attention/row_blocks.cuh"
#include "cuda/attention/tile_ring.cuh"
#include "cuda/attention/tile_scheduler.cuh"
#include "cuda/ptx/bulk_load.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/load_shared_pair.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/ptx/special_registers.cuh"

#include "generated/wgmma.cuh"

namespace attune {

// Of a kernel that makes dK, or dV alone.
template <bool kMakesK>
constexpr BackwardSm90Layout kKeysLayout = backward_sm90_layout({kKeyBlockN, kKeyBlockM, kQSlots,
                                                                 kDoutSlots, kHeadDimQk, kHeadDimV,
                                                                 kMakesK, true});
template <bool kMakesK>
constexpr BackwardSm90Ring kQRing = kKeysLayout<kMakesK>.first_ring;
template <bool kMakesK>
constexpr BackwardSm90Ring kDoutRing = kKeysLayout<kMakesK>.second_ring;
constexpr int kKeysThreads = (kKeyBlockN / kWarpgroupRows + 1) * kWarpgroupThreads;
constexpr PrefillSm90Registers kKeysRegisters =
    backward_sm90_registers(kKeyBlockN / kWarpgroupRows);

// A tile of keys and the blocks of rows that see it, in each head of the group.
struct KeysTile {
  int first_key;
  int head;  // of K
  int batch;
  BlockRange blocks;
  __device__ __forceinline__ int steps() const {
    return max(0, blocks.end - blocks.begin) * kGqaRatio;
  }
};

// The first keys are seen by most rows under a causal mask.
__device__ __forceinline__ KeysTile keys_tile(const AttentionArgs& args) {
  constexpr int kOrder = kIsCausal ? kSectionsLongestFirst : kRowsFirst;
  AttentionArgs turned = args;  // keys for rows
  turned.seqlen_q = args.seqlen_kv;
  turned.num_heads_q = args.num_heads_kv;
  turned.seqlen_kv = args.seqlen_q * kGqaRatio;
  Tile place = TileScheduler<kOrder, kKeyBlockN, kL2SectionMb, 1>(turned)(blockIdx.x);
  if (kIsCausal)
    place.row_block = (args.seqlen_kv + kKeyBlockN - 1) / kKeyBlockN - 1 - place.row_block;
  const int first = place.row_block * kKeyBlockN;
  return {first, place.head, place.batch,
          row_blocks<kKeyBlockM>(args, first, min(first + kKeyBlockN, args.seqlen_kv))};
}

// The tensor maps of a kernel; those of what it does not make are not there.
struct KeysMaps {
  const TensorMap* q;
  const TensorMap* k;
  const TensorMap* v;
  const TensorMap* dout;
  const TensorMap* dk;
  const TensorMap* dv;
};

// A streamed tile of kPanels panels, with its rows' statistics.
template <int kPanels, class Ring>
__device__ __forceinline__ void stream_tile(Ring& ring, const TensorMap& map,
                                            const float* statistics, int row, int head, int batch) {
  constexpr int kStatisticsBytes = 4 * kKeyBlockM;
  const unsigned full = ring.await_free();
  mbarrier_arrive_expect_tx(full, kPanels * kKeyBlockM * kPanelRowBytes + kStatisticsBytes);
  load_tile<kPanels, kKeyBlockM>(ring.tile(), map, full, row, head, batch);
  bulk_load(ring.statistics(), statistics, kStatisticsBytes, full);
  ring.advance();
}

template <bool kMakesK>
__device__ __forceinline__ void produce_rows(const AttentionArgs& args, const KeysTile& tile,
                                             unsigned shared, const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  TileRing<kQRing<kMakesK>> q(shared);
  TileRing<kDoutRing<kMakesK>> dout(shared);
  if (tile.steps() == 0) return;
  load_staying<kLayout.panels_qk, kLayout.warpgroups>(shared + kLayout.first, kLayout.first_bytes,
                                                      *maps.k, shared + kLayout.first_full,
                                                      tile.first_key, tile.head, tile.batch);
  if constexpr (kMakesK)
    load_staying<kLayout.panels_v, kLayout.warpgroups>(
        shared + kLayout.second, kLayout.second_bytes, *maps.v, shared + kLayout.second_full,
        tile.first_key, tile.head, tile.batch);
  int head = tile.head * kGqaRatio;
  int row = tile.blocks.begin * kKeyBlockM;
  const float* sums = row_sums(args, tile.batch, head) + row;
#pragma unroll 1
  for (int i = tile.steps(); i > 0; --i) {
    const int rows = reread(padded_rows(args));
    stream_tile<kLayout.panels_qk>(q, *maps.q, sums, row, head, tile.batch);
    stream_tile<kLayout.panels_v>(dout, *maps.dout, sums + rows, row, head, tile.batch);
    row += kKeyBlockM;
    sums += kKeyBlockM;
    if (row < tile.blocks.end * kKeyBlockM) continue;
    row = tile.blocks.begin * kKeyBlockM;  // of the next head
    sums += 2 * rows - (tile.blocks.end - tile.blocks.begin) * kKeyBlockM;
    ++head;
  }
}

template <bool kMakesK, bool kMakesV>
class KeysConsumer {
  static constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  static constexpr int kPairs = kKeyBlockM / 4;
  using Scores = float[kKeyBlockM / 2];
  using Rounded = unsigned[kPairs];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

 public:
  __device__ __forceinline__ KeysConsumer(const AttentionArgs& args, const KeysTile& tile,
                                          unsigned shared, int warpgroup)
      : args_(args),
        q_ring_(shared),
        dout_ring_(shared),
        shared_(shared),
        k_(by_rows(shared + kLayout.first + warpgroup * kLayout.first_bytes)),
        v_(by_rows(shared + kLayout.second + warpgroup * kLayout.second_bytes)),
        first_key_(tile.first_key + warpgroup * kWarpgroupRows),
        // Keys past the end count as keys: nothing of them is stored.
        blocks_(row_blocks<kKeyBlockM>(args, first_key_, first_key_ + kWarpgroupRows)) {}

  // dK without softmax_scale.
  __device__ __forceinline__ void run(const KeysTile& tile, Dk& dk, Dv& dv) {
    if constexpr (kMakesK) clear(dk);
    if constexpr (kMakesV) clear(dv);
    const int steps = tile.steps();
    if (steps == 0) return;
    Rounded ds;
    mbarrier_wait(shared_ + kLayout.first_full, 0, "k_full");
    int block = tile.blocks.begin;
    step<true>(block, ds, dk, dv);
#pragma unroll 1
    for (int i = 1; i < steps; ++i) {
      if (++block == tile.blocks.end) block = tile.blocks.begin;  // of the next head
      step<false>(block, ds, dk, dv);
    }
    if constexpr (kMakesK) {
      wgmma_fence();
      issue_dk(ds, dk);
      wgmma_wait<0>();
      wgmma_pin(dk);
    }
  }

 private:
  __device__ __forceinline__ void issue_dk(const Rounded& ds, Dk& dk) {
    wgmma_ds_q(dk, ds, by_columns<kKeyBlockM>(q_.tile), 1);  // where kGradientK == true
    wgmma_commit();
  }

  template <bool kFirst>
  __device__ __forceinline__ void step(int block, Rounded& ds, Dk& dk, Dv& dv) {
    Scores s, dp;
    const unsigned l2 = q_ring_.statistics();
    const RingSlot q = q_ring_.take();
    wgmma_fence();
    wgmma_k_q(s, k_, by_rows(q.tile));
    wgmma_commit();
    if constexpr (kMakesK) {
      if constexpr (kFirst)
        mbarrier_wait(shared_ + kLayout.second_full, 0, "v_full");
      else
        issue_dk(ds, dk);
    }
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    if constexpr (kMakesK) issue_dp(dout, dp);
    wgmma_wait<(kMakesK ? (kFirst ? 1 : 2) : 0)>();
    wgmma_pin(s);
    exponentiate(l2, s);
    if (blocks_.needs_mask(block)) hide(block, s);
    if constexpr (kMakesK && !kFirst) {
      wgmma_wait<1>();
      wgmma_pin(dk);
      give_back(q_);
    }
    if constexpr (!kMakesK) give_back(q);
    Rounded p;
    if constexpr (kMakesV) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) p[i] = pack<kDtypeQ>(s[2 * i], s[2 * i + 1]);
      wgmma_fence();
      issue_dv(p, dout, dv);
    }
    if constexpr (kMakesK) {
      wgmma_wait<(kMakesV ? 1 : 0)>();
      wgmma_pin(dp);
      differentiate(delta, s, dp, ds);
    }
    if constexpr (kMakesV) {
      wgmma_wait<0>();
      wgmma_pin(dv);
    }
    give_back(dout);
    q_ = q;
  }

  __device__ __forceinline__ void issue_dp(const RingSlot& dout, Scores& dp) {
    wgmma_v_dout(dp, v_, by_rows(dout.tile));  // where kGradientK == true
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_dv(const Rounded& p, const RingSlot& dout, Dv& dv) {
    wgmma_p_dout(dv, p, by_columns<kKeyBlockM>(dout.tile), 1);  // where kGradientV == true
    wgmma_commit();
  }

  // A thread's columns of a step are queries; eight lanes read the same values.
  __device__ __forceinline__ static void load_pair(unsigned statistics, int block8, float (&x)[2]) {
    load_shared_pair(statistics + block8 * 32 + threadIdx.x % 4 * 8, &x[0], &x[1]);
  }

  __device__ __forceinline__ void exponentiate(unsigned l2, Scores& s) const {
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; i += 4) {
      float of[2];
      load_pair(l2, i / 4, of);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        s[i + j] = exp2_approx(s[i + j] * args_.softmax_scale_log2 - of[j % 2]);
    }
  }

  __device__ __forceinline__ static void differentiate(unsigned delta, const Scores& p,
                                                       const Scores& dp, Rounded& ds) {
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; i += 4) {
      float of[2];
      load_pair(delta, i / 4, of);
#pragma unroll
      for (int j = 0; j < 4; j += 2)
        ds[(i + j) / 2] =
            pack<kDtypeQ>(p[i + j] * (dp[i + j] - of[0]), p[i + j + 1] * (dp[i + j + 1] - of[1]));
    }
  }

  __device__ __forceinline__ void hide(int block, Scores& p) const {
    const int key = first_key_ + first_accumulator_row();
    const int origin = block * kKeyBlockM + static_cast<int>(threadIdx.x) % 4 * 2;
    const RowInterval rows[2] = {visible_rows(CompiledRule(), args_, key),
                                 visible_rows(CompiledRule(), args_, key + 8)};
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; ++i) {
      const int row = origin + i / 4 * 8 + i % 2;
      if (row < rows[i / 2 % 2].first || row > rows[i / 2 % 2].last) p[i] = 0.f;
    }
  }

  const AttentionArgs& args_;
  TileRing<kQRing<kMakesK>> q_ring_;
  TileRing<kDoutRing<kMakesK>> dout_ring_;
  unsigned shared_;
  unsigned long long k_, v_;  // descriptors
  int first_key_;             // of the warpgroup
  BlockRange blocks_;
  RingSlot q_{};  // of the step before, whose product with dS is still to be issued
};

template <bool kMakesK, bool kMakesV>
__device__ __forceinline__ void run_keys(const AttentionArgs& args, const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kKeysLayout<kMakesK>;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  init_barriers(shared, kKeysLayout<kMakesK>);
  const KeysTile tile = keys_tile(args);
  // A kernel of this plan ahead of this one lets it start when the first step, which made all that is read here, has ended.
  if constexpr (!kGradientQ && !(kMakesV && kSplitKv)) wait_for_prior_grid();
  let_next_grid_start();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (warpgroup < 0) {
    if constexpr (kKeysRegisters.moved) register_decrease<kKeysRegisters.producer>();
    if (threadIdx.x == 0) produce_rows<kMakesK>(args, tile, shared, maps);
  } else {
    if constexpr (kKeysRegisters.moved) register_increase<kKeysRegisters.consumer>();
    float dk[kHeadDimQk / 2], dv[kHeadDimV / 2];
    KeysConsumer<kMakesK, kMakesV>(args, tile, shared, warpgroup).run(tile, dk, dv);
    const TensorCoord at{0, tile.first_key + warpgroup * kWarpgroupRows, tile.head, tile.batch};
    const unsigned first = shared + kLayout.first + warpgroup * kLayout.first_bytes;
    const unsigned second = shared + kLayout.second + warpgroup * kLayout.second_bytes;
    if constexpr (kMakesV)
      store_gradient<kDtypeKv>(*maps.dv, kMakesK ? second : first, warpgroup, at, 1.f, dv);
    if constexpr (kMakesK)
      store_gradient<kDtypeKv>(*maps.dk, first, warpgroup, at, args.softmax_scale, dk);
    if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
  }
  wait_for_prior_grid();  // whoever waits for this grid waits for those ahead of it, too
}

// What attune_keys makes.
extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_keys(const __grid_constant__ AttentionArgs args, const __grid_constant__ TensorMap map_q,
                const __grid_constant__ TensorMap map_k,
                const __grid_constant__ TensorMap map_v,   // where kKeysMakeK == true
                const __grid_constant__ TensorMap map_dk,  // where kKeysMakeK == true
                const __grid_constant__ TensorMap map_dv,  // where kKeysMakeV == true
                const __grid_constant__ TensorMap map_dout) {
  KeysMaps maps{&map_q, &map_k, nullptr, &map_dout, nullptr, nullptr};
  maps.v = &map_v;    // where kKeysMakeK == true
  maps.dk = &map_dk;  // where kKeysMakeK == true
  maps.dv = &map_dv;  // where kKeysMakeV == true
  run_keys<kKeysMakeK, kKeysMakeV>(args, maps);
}

}  // namespace attune
