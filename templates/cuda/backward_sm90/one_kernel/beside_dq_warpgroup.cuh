// SPDX-License-Identifier: Apache-2.0
// Makes dK and dV of a tile in kernels that have a separate warpgroup for dQ. The two warpgroups of
// keys work as in keys.cuh, and write dS of each step to shared memory for the dQ warpgroup. Both
// take all steps of a tile, in the order of ordered_dq.cuh, because dQ sums over the keys of both.
#pragma once

#include "cuda/backward_sm90/one_kernel/ds.cuh"
#include "cuda/ptx/named_barrier.cuh"

namespace attune {

constexpr int kBarrierExponentials = 5;  // first of two named barriers, one per warpgroup

// Handshakes of a warpgroup of keys with the other warpgroups. It writes dS^T of its keys to shared
// memory, transposed. The two warpgroups of keys take turns: one makes exponentials while the other
// multiplies.
class DsKeeper {
 public:
  static constexpr bool kKeeps = true;

  DsKeeper() = default;
  __device__ __forceinline__ DsKeeper(unsigned shared, int warpgroup)
      : shared_(shared),
        warpgroup_(warpgroup),
        panel_(shared + kOneKernelLayout.parts.ds + warpgroup * kDsPanelBytes +
               ds_offset<0>(static_cast<int>(threadIdx.x) % kWarpgroupThreads)) {}

  // open_turns() is called once before all tiles, close_turns() once after them.
  __device__ __forceinline__ void open_turns() const {
    if (warpgroup_ == 1) named_barrier_arrive(kBarrierExponentials, kOneKernelConsumers);
  }
  __device__ __forceinline__ void close_turns() const {
    if (warpgroup_ == 0) named_barrier_sync(kBarrierExponentials, kOneKernelConsumers);
  }

  __device__ __forceinline__ void await_turn() const {
    named_barrier_sync(kBarrierExponentials + warpgroup_, kOneKernelConsumers);
  }
  __device__ __forceinline__ void end_turn() const {
    named_barrier_arrive(kBarrierExponentials + 1 - warpgroup_, kOneKernelConsumers);
  }

  template <int kCount>
  __device__ __forceinline__ void keep(const unsigned (&ds)[kCount]) {
    await_ds_slot(shared_, step_);
    write_ds(panel_ + step_ % kDsSlots * kOneKernelLayout.parts.ds_bytes, ds);
    tell_ds(shared_, step_);
    ++step_;
  }

 private:
  unsigned shared_;
  int warpgroup_;
  unsigned panel_;  // shared address at which this thread writes in slot 0
  unsigned step_ = 0;
};

class ConsumerBesideDq : public KeysConsumer<true, true, DsKeeper> {
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

 public:
  __device__ __forceinline__ ConsumerBesideDq(const AttentionArgs& args, const KeysDropout& dropout,
                                              unsigned shared, int warpgroup)
      : KeysConsumer(args, dropout, shared, warpgroup) {
    static_cast<DsKeeper&>(*this) = DsKeeper(shared, warpgroup);
  }

  __device__ __forceinline__ void begin() const { open_turns(); }
  __device__ __forceinline__ void end() const { close_turns(); }

  __device__ __forceinline__ void run(const KeysTile& tile, int first_key, unsigned parity, Dk& dk,
                                      Dv& dv) {
    first_key_ = first_key;
    blocks_ =
        row_blocks<kKeyBlockM>(args_, first_key, min(first_key + kWarpgroupRows, args_.seqlen_kv));
    if (first_key + kWarpgroupRows > args_.seqlen_kv) blocks_.full_end = 0;  // mask all blocks
    clear(dk);
    clear(dv);
    mbarrier_wait(first_full_, parity, "k_full");
    mbarrier_wait(
        first_full_ + kOneKernelLayout.parts.second_full - kOneKernelLayout.parts.first_full,
        parity, "v_full");
    const int first = tile.blocks.end - 1, last = tile.blocks.begin;
    if (first < last) return;
#pragma unroll 1
    for (int head = 0; head < tile.heads; ++head) {
      unsigned ds[kKeyBlockM / 4];
      step<true>(first, ds, dk, dv);
#pragma unroll 1
      for (int block = first - 1; block >= last; --block) step<false>(block, ds, dk, dv);
      wgmma_fence();
      issue_previous_dk(ds, dk);
      wgmma_wait<0>();
      wgmma_pin(dk);
      give_back(q_);
    }
  }
};

}  // namespace attune
