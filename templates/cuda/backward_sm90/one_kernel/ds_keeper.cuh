// SPDX-License-Identifier: Apache-2.0
// Handshakes of a warpgroup of keys with the other warpgroups, if a separate warpgroup makes dQ
// (backward_has_dq_warpgroup.cuh). A warpgroup of keys writes dS^T of its keys to shared memory,
// transposed. The two warpgroups of keys take turns: one makes exponentials while the other
// multiplies.
#pragma once

#include "cuda/backward_sm90/one_kernel/ds.cuh"
#include "cuda/ptx/named_barrier.cuh"

namespace attune {

constexpr int kBarrierExponentials = 5;  // first of two named barriers, one per warpgroup

class DsKeeper {
 public:
  static constexpr bool kKeeps = true;

  DsKeeper() = default;
  __device__ __forceinline__ DsKeeper(unsigned shared, int warpgroup)
      : shared_(shared),
        warpgroup_(warpgroup),
        panel_(shared + kFusedLayout.parts.ds + warpgroup * kDsPanelBytes +
               ds_offset<0>(static_cast<int>(threadIdx.x) % kWarpgroupThreads)) {}

  // open_turns() is called once before all tiles, close_turns() once after them.
  __device__ __forceinline__ void open_turns() const {
    if (warpgroup_ == 1) named_barrier_arrive(kBarrierExponentials, kFusedConsumers);
  }
  __device__ __forceinline__ void close_turns() const {
    if (warpgroup_ == 0) named_barrier_sync(kBarrierExponentials, kFusedConsumers);
  }

  __device__ __forceinline__ void await_turn() const {
    named_barrier_sync(kBarrierExponentials + warpgroup_, kFusedConsumers);
  }
  __device__ __forceinline__ void end_turn() const {
    named_barrier_arrive(kBarrierExponentials + 1 - warpgroup_, kFusedConsumers);
  }

  template <int kCount>
  __device__ __forceinline__ void keep(const unsigned (&ds)[kCount]) {
    await_ds_slot(shared_, step_);
    write_ds(panel_ + step_ % kDsSlots * kFusedLayout.parts.ds_bytes, ds);
    tell_ds(shared_, step_);
    ++step_;
  }

 private:
  unsigned shared_;
  int warpgroup_;
  unsigned panel_;  // shared address at which this thread writes in slot 0
  unsigned step_ = 0;
};

}  // namespace attune
