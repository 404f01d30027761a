// SPDX-License-Identifier: Apache-2.0
// Makes all gradients of backward_sm90 in one kernel, with a separate warpgroup for dQ. The two
// warpgroups of keys make dK and dV as in backward_keys.cuh, and write dS of each step to shared
// memory for the dQ warpgroup. Both take all steps of a tile, in the order of dq_turns.cuh, because
// dQ sums over the keys of both.
#pragma once

#include "cuda/backward_sm90/backward_dq_apart.cuh"

namespace attune {

class ApartConsumer : public KeysConsumer<true, true> {
  using Dk = float[kHeadDimQk / 2];
  using Dv = float[kHeadDimV / 2];

 public:
  __device__ __forceinline__ ApartConsumer(const AttentionArgs& args, unsigned shared,
                                           int warpgroup)
      : KeysConsumer(args, shared, warpgroup) {
    keeper_ = DsKeeper(shared, warpgroup);
  }

  __device__ __forceinline__ void begin() const { keeper_.open_turns(); }
  __device__ __forceinline__ void end() const { keeper_.close_turns(); }

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

using AllConsumer = ApartConsumer;
constexpr int kFusedThreads = kKeysThreads + kWarpgroupThreads;
constexpr PrefillSm90Registers kFusedRegisters{kApartRegisters.launch, kApartRegisters.keys,
                                               kApartRegisters.producer, true};

}  // namespace attune
