// SPDX-License-Identifier: Apache-2.0
// All gradients of backward_sm90 by one kernel: that of backward_keys.cuh, which makes dQ, too. Two warpgroups of 64 keys each write dS^T of a step,
// transposed, to shared memory, and each multiplies half of dQ = dS K over all 128 keys:
//   64 rows of a step:  half of the columns        128 rows:  half of the rows
// Accumulators go to shared memory as they stand; a warp adds them, in fp32, to global memory by bulk copies. Blocks of keys add to a block of
// rows in the order of keys, so that every run gives the same bits: tiles of lower keys have lower numbers, and a block that runs waits for such
// alone. All tiles begin with the last rows, so that who starts together soon stands one behind the other, and no one waits any more.
#pragma once

#include "cuda/attention/backward_keys.cuh"
#include "cuda/attention/backward_store.cuh"
#include "cuda/attention/fused_workspace.cuh"
#include "cuda/ptx/bulk_reduce.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/ptx/stmatrix_transposed.cuh"
#include "cuda/ptx/turns.cuh"

namespace attune {

constexpr BackwardSm90Tile kFusedTile{kKeyBlockN, kKeyBlockM, kQSlots, kDoutSlots,
                                      kHeadDimQk, kHeadDimV,  true,    true};
constexpr int kDqSlots = backward_fused_dq_slots(kFusedTile);
constexpr BackwardFusedLayout kFusedLayout = backward_fused_layout(kFusedTile, kDqSlots);
constexpr int kFusedColumns = backward_fused_columns(kKeyBlockM, kHeadDimQk);
constexpr int kFusedConsumers = 2 * kWarpgroupThreads, kFusedWarps = kFusedConsumers / 32;
constexpr int kBarrierBoth = 4;  // named, of both; those before are of warpgroups

// Whether dV ends before dP is asked for: registers do not hold P, dP and what is rounded of P beside what stays.
constexpr bool kDvFirst = backward_fused_dv_first(kKeyBlockM, kHeadDimQk + kHeadDimV);

// What a warp wrote to shared memory is there for products and bulk copies.
__device__ __forceinline__ void tell(unsigned barrier) {
  fence_proxy_async();
  __syncwarp();
  mbarrier_arrive_if(threadIdx.x % 32 == 0, barrier);
}

// The slots through which dQ leaves, and one side's place among them.
class DqSlots {
 public:
  __device__ __forceinline__ explicit DqSlots(unsigned shared) : shared_(shared) {}

  __device__ __forceinline__ void await_empty() const {
    mbarrier_wait(shared_ + kFusedLayout.dq_empty + 8 * slot(), parity() ^ 1, "dq empty");
  }
  __device__ __forceinline__ void await_full() const {
    mbarrier_wait(shared_ + kFusedLayout.dq_full + 8 * slot(), parity(), "dq full");
  }
  __device__ __forceinline__ void tell_full() const {
    tell(shared_ + kFusedLayout.dq_full + 8 * slot());
  }
  __device__ __forceinline__ void tell_empty() const {
    mbarrier_arrive(shared_ + kFusedLayout.dq_empty + 8 * slot());
  }
  __device__ __forceinline__ unsigned tile() const {
    return shared_ + kFusedLayout.dq + slot() * kFusedLayout.dq_bytes;
  }
  __device__ __forceinline__ void advance() {
    state_ += 2;
    if (state_ >= 2 * kDqSlots) state_ = (state_ - 2 * kDqSlots) ^ 1;
  }
  __device__ __forceinline__ int slot() const { return state_ >> 1; }

 private:
  __device__ __forceinline__ unsigned parity() const { return state_ & 1; }

  unsigned shared_;
  int state_ = 0;
};

class FusedConsumer : public KeysConsumer<true, true> {
  using Base = KeysConsumer<true, true>;
  using Scores = float[kKeyBlockM / 2];
  using Rounded = unsigned[kKeyBlockM / 4];
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];
  using Dq = float[kFusedColumns / 2];

 public:
  __device__ __forceinline__ FusedConsumer(const AttentionArgs& args, unsigned shared,
                                           int warpgroup)
      : Base(args, shared, warpgroup), shared_(shared), slots_(shared) {}

  __device__ __forceinline__ void run_all(const KeysTile& tile, int first_key, unsigned parity,
                                          Dk& dk, Dv& dv) {
    first_key_ = first_key;
    missing_ = first_key + kWarpgroupRows > args_.seqlen_kv;
    blocks_ =
        row_blocks<kKeyBlockM>(args_, first_key, min(first_key + kWarpgroupRows, args_.seqlen_kv));
    clear(dk);
    clear(dv);
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // dQ wants K of both
      mbarrier_wait(shared_ + kFusedLayout.parts.first_full + 8 * i, parity, "k_full");
      mbarrier_wait(shared_ + kFusedLayout.parts.second_full + 8 * i, parity, "v_full");
    }
    if (tile.blocks.begin >= tile.blocks.end) return;
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
      int block = tile.blocks.end - 1;
      step_all<true>(block, dk, dv);
#pragma unroll 1
      for (--block; block >= tile.blocks.begin; --block) step_all<false>(block, dk, dv);
      Dq dq;
      wgmma_fence();
      issue_dq(dq);
      wgmma_wait<0>();
      wgmma_pin(dq);
      hand_over(dq);
    }
  }

 private:
  __device__ __forceinline__ static int warpgroup() {
    return __shfl_sync(~0u, reread_thread_index() / kWarpgroupThreads, 0) - 1;
  }

  // Of step j: S(j), then dQ(j - 1) beside exponentials; dP(j) and dV(j), dS beside that; dK(j).
  template <bool kFirst>
  __device__ __forceinline__ void step_all(int block, Dk& dk, Dv& dv) {
    Scores s;
    const unsigned l2 = q_ring_.statistics();
    const RingSlot q = q_ring_.take();
    wgmma_fence();
    wgmma_k_q(s, k_, by_rows(q.tile));
    wgmma_commit();
    Dq dq;
    if constexpr (!kFirst) issue_dq(dq);
    wgmma_wait<(kFirst ? 0 : 1)>();
    wgmma_pin(s);
    exponentiate(l2, s);
    if (missing_ || blocks_.needs_mask(block)) hide_all(block, s);
    if constexpr (!kFirst) {
      wgmma_wait<0>();
      wgmma_pin(dq);
      hand_over(dq);
    }
    const unsigned delta = dout_ring_.statistics();
    const RingSlot dout = dout_ring_.take();
    Scores dp;
    Rounded p, ds;
    round(s, p);
    wgmma_fence();
    if constexpr (kDvFirst) {
      issue_dv(p, dout, dv);
      wgmma_wait<0>();
      wgmma_pin(dv);
      wgmma_fence();
      issue_dp(dout, dp);
      wgmma_wait<0>();
    } else {
      issue_dp(dout, dp);
      issue_dv(p, dout, dv);
      wgmma_wait<1>();
    }
    wgmma_pin(dp);
    differentiate(delta, s, dp, ds);
    keep(ds);
    wgmma_fence();
    wgmma_ds_q(dk, ds, by_columns<kKeyBlockM>(q.tile), 1);
    wgmma_commit();
    if constexpr (!kDvFirst) {
      wgmma_wait<1>();
      wgmma_pin(dv);
    }
    give_back(dout);
    wgmma_wait<0>();
    wgmma_pin(dk);
    give_back(q);
  }

  __device__ __forceinline__ static void round(const Scores& s, Rounded& p) {
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 4; ++i) p[i] = pack<kDtypeQ>(s[2 * i], s[2 * i + 1]);
  }

  // dS^T, 64 keys x a step's rows, as rows of 64 keys. Of two places, for the other warpgroup may still multiply the step before.
  __device__ __forceinline__ void keep(const Rounded& ds) {
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const int lane = thread % 32, warp = thread / 32;
    const int row = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
    const unsigned to = ds_tile(ds_write_ & 1) + warpgroup() * kKeyBlockM * kPanelRowBytes +
                        row * kPanelRowBytes + ((chunk ^ row % 8) << 4);
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 16; ++i) {
      const unsigned words[4] = {ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]};
      stmatrix_x4_transposed(to + i * 16 * kPanelRowBytes, words);
    }
    tell(shared_ + kFusedLayout.ds_full + 8 * (ds_write_ & 1));
    ++ds_write_;
  }

  // Of the step before, when both warpgroups have written its dS.
  __device__ __forceinline__ void issue_dq(Dq& dq) {
    const unsigned step = ds_write_ - 1;
    mbarrier_wait(shared_ + kFusedLayout.ds_full + 8 * (step & 1), step >> 1 & 1, "ds full");
    constexpr bool kByRows = kKeyBlockM > kWarpgroupRows;
    constexpr int kHalfOfK =
        kByRows ? 0 : kFusedColumns / kPanelColumns * kWarpgroupRows * kPanelRowBytes;
    constexpr int kHalfOfDs = kByRows ? kWarpgroupRows * kPanelRowBytes : 0;
    const unsigned rows = ds_tile(step & 1) + warpgroup() * kHalfOfDs;
    const unsigned keys = shared_ + kFusedLayout.parts.first + warpgroup() * kHalfOfK;
    wgmma_ds_keys(dq, by_rows(rows), by_columns<kWarpgroupRows>(keys), 0);
    wgmma_ds_keys(dq, by_rows(rows + kKeyBlockM * kPanelRowBytes),
                  by_columns<kWarpgroupRows>(keys + kFusedLayout.parts.first_bytes), 1);
    wgmma_commit();
  }

  __device__ __forceinline__ unsigned ds_tile(unsigned which) const {
    return shared_ + kFusedLayout.ds + which * kFusedLayout.ds_bytes;
  }

  __device__ __forceinline__ void hand_over(const Dq& dq) {
    slots_.await_empty();
    const unsigned to = slots_.tile() + warpgroup() * (kFusedLayout.dq_bytes / 2) +
                        static_cast<unsigned>(reread_thread_index()) % kWarpgroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kFusedColumns / 2; i += 4)
      store_shared_16(to + i / 4 * kWarpgroupThreads * 16,
                      {{__float_as_uint(dq[i]), __float_as_uint(dq[i + 1]),
                        __float_as_uint(dq[i + 2]), __float_as_uint(dq[i + 3])}});
    slots_.tell_full();
    slots_.advance();
  }

  // Keys past the end too: K is zero there, and P may be inf.
  __device__ __forceinline__ void hide_all(int block, Scores& p) const {
    hide(block, p);
    const int keys = args_.seqlen_kv - first_key_ - first_accumulator_row();
#pragma unroll
    for (int i = 0; i < kKeyBlockM / 2; ++i)
      if (i / 2 % 2 * 8 >= keys) p[i] = 0.f;
  }

  unsigned shared_;
  bool missing_ = false;   // keys past the end
  unsigned ds_write_ = 0;  // steps whose dS this warpgroup has written
  DqSlots slots_;
};

// Adds block `row_block` of rows, `at` of all heads, when it is the turn of block `key_block` of keys.
__device__ __forceinline__ void add_block(const AttentionArgs& args, const DqSlots& slots,
                                          int key_block, int row_block, int at) {
  const int turn =
      key_block - visible_keys(reread(args), row_block * kKeyBlockM).first / kKeyBlockN;
  await_turn(FusedWorkspace(reread(args)).turn(at), turn);
  slots.await_full();
  float* const to = FusedWorkspace(reread(args)).dq(at);
  if (turn == 0)
    bulk_store(to, slots.tile(), kFusedLayout.dq_bytes);
  else
    bulk_add(to, slots.tile(), kFusedLayout.dq_bytes);
  tma_store_commit();
  tma_store_wait_read();
  slots.tell_empty();
  tma_store_wait();
  end_turn(FusedWorkspace(reread(args)).turn(at));
}

// A thread for each slot adds what consumers hand over: a turn takes about as long as a step. It goes through each_step with few registers.
__device__ __forceinline__ void add_dq(const AttentionArgs& args, unsigned shared) {
  DqSlots slots(shared);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    const int key_block = tile.first_key / kKeyBlockN;
    const int begin = tile.blocks.begin, end = max(begin, tile.blocks.end);
    int first = (tile.batch * args.num_heads_kv + tile.head) * kGqaRatio *
                FusedWorkspace(reread(args)).blocks();
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
#pragma unroll 1
      for (int block = end - 1; block >= begin; --block) {
        if (slots.slot() == reread_thread_index() / 32 - 2)
          add_block(args, slots, key_block, block, first + block);
        slots.advance();
      }
      first += FusedWorkspace(reread(args)).blocks();
    }
  }
}

__device__ __forceinline__ void consume_all(const AttentionArgs& args, unsigned shared,
                                            int warpgroup, const KeysMaps& maps) {
  constexpr BackwardSm90Layout kLayout = kFusedLayout.parts;
  FusedConsumer consumer(args, shared, warpgroup);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    const int first_key = tile.first_key + warpgroup * kWarpgroupRows;
    float dk[kHeadDimQk / 2], dv[kHeadDimV / 2];
    consumer.run_all(tile, first_key, tiles.parity(), dk, dv);
    named_barrier_sync(kBarrierBoth, kFusedConsumers);  // nobody reads K of the other
    const TensorCoord at{0, first_key, tile.head, tile.batch};
    store_gradient<kDtypeKv>(*maps.dv, shared + kLayout.second + warpgroup * kLayout.second_bytes,
                             warpgroup, at, 1.f, dv);
    store_gradient<kDtypeKv>(*maps.dk, shared + kLayout.first + warpgroup * kLayout.first_bytes,
                             warpgroup, at, args.softmax_scale, dk);
    if (threadIdx.x % kWarpgroupThreads == 0) {
      tma_store_wait_read();
      mbarrier_arrive(shared + kLayout.first_empty + 8 * warpgroup);
      mbarrier_arrive(shared + kLayout.second_empty + 8 * warpgroup);
    }
  }
  if (threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

extern "C" __global__ void __launch_bounds__(kKeysThreads, 1)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v, const __grid_constant__ TensorMap map_dk,
                  const __grid_constant__ TensorMap map_dv,
                  const __grid_constant__ TensorMap map_dout) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) mbarrier_init(shared + kFusedLayout.ds_full + 8 * i, kFusedWarps);
    for (int i = 0; i < kDqSlots; ++i) {
      mbarrier_init(shared + kFusedLayout.dq_full + 8 * i, kFusedWarps);
      mbarrier_init(shared + kFusedLayout.dq_empty + 8 * i, 1);
    }
  }
  init_barriers(shared, kFusedLayout.parts);
  wait_for_prior_grid();
  let_next_grid_start();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (warpgroup < 0) {
    if constexpr (kKeysRegisters.moved) register_decrease<kKeysRegisters.producer>();
    if (threadIdx.x == 0)
      produce_rows<true>(args, shared, {&map_q, &map_k, &map_v, &map_dout, nullptr, nullptr});
    else if (threadIdx.x == 32)
      produce_sums<true>(args, shared);
    else if (threadIdx.x % 32 == 0 && threadIdx.x < 64 + 32 * kDqSlots)
      add_dq(args, shared);
  } else {
    if constexpr (kKeysRegisters.moved) register_increase<kKeysRegisters.consumer>();
    consume_all(args, shared, warpgroup, {&map_q, &map_k, &map_v, &map_dout, &map_dk, &map_dv});
  }
}

}  // namespace attune
