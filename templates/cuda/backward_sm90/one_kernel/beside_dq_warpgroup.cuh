// SPDX-License-Identifier: Apache-2.0
// Makes dK and dV of backward_sm90 in the kernel that has a separate warpgroup for dQ. The two
// warpgroups of keys work as in keys.cuh, and write dS of each step to shared memory for the dQ
// warpgroup. Both take all steps of a tile, in the order of ordered_dq.cuh, because dQ sums over
// the keys of both.
#pragma once

#include "cuda/backward_sm90/one_kernel/ds_keeper.cuh"

namespace attune {

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
    mbarrier_wait(first_full_ + kFusedLayout.parts.second_full - kFusedLayout.parts.first_full,
                  parity, "v_full");
    const int first = tile.blocks.end - 1, last = tile.blocks.begin;
    if (first < last) return;
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
      unsigned ds[kKeyBlockM / 4];
      step<true>(first, ds, dk, dv);
#pragma unroll 1
      for (int block = first - 1; block >= last; --block) step<false>(block, ds, dk, dv);
      wgmma_fence();
      issue_dk(ds, dk);
      wgmma_wait<0>();
      wgmma_pin(dk);
      give_back(q_);
    }
  }
};

}  // namespace attune
