// SPDX-License-Identifier: Apache-2.0
// How dQ leaves the kernel that makes all gradients where no order is asked: blocks of keys add to fp32 in the workspace, as it stands in
// dq_turns.cuh, when they have something to add. Warpgroups put accumulators, as they stand, into shared memory, and a thread of the producer's
// warpgroup for each adds them by bulk copies. Bits differ from run to run.
//
//   warpgroups:         wait dq_empty; write; a lane of each warp arrives on dq_full
//   threads of copies:  wait dq_full; store or add; arrive on dq_empty when the copy has read
//
// Who comes to a part of a block of rows first stores, so that nothing is zeroed before, and others wait until that is done: of a head, blocks that
// start together stand a step behind the first of them from then on, and do not wait again.
#pragma once

#include "cuda/attention/backward_keys.cuh"
#include "cuda/attention/drawn_tiles.cuh"
#include "cuda/ptx/bulk_add.cuh"
#include "cuda/ptx/claim.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

class DqPlaces {
 public:
  __device__ __forceinline__ explicit DqPlaces(unsigned shared) : shared_(shared) {}

  // Of a warpgroup: its half of dQ of a block of rows, or all of it.
  template <int kCount>
  __device__ __forceinline__ void add(int part, const float (&dq)[kCount]) {
    static_assert(kCount * 4 * kWarpgroupThreads == kFreeLayout.staging_bytes);
    mbarrier_wait(shared_ + kFreeLayout.empty + 8 * part, (step_ & 1) ^ 1, "dq empty");
    const unsigned to = shared_ + kFreeLayout.staging + part * kFreeLayout.staging_bytes +
                        reread_thread_index() % kWarpgroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      store_shared_16(to + i * 4 * kWarpgroupThreads,
                      {{__float_as_uint(dq[i]), __float_as_uint(dq[i + 1]),
                        __float_as_uint(dq[i + 2]), __float_as_uint(dq[i + 3])}});
    fence_proxy_async();
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kFreeLayout.full + 8 * part);
    ++step_;
  }

 private:
  unsigned shared_;
  unsigned step_ = 0;
};

__device__ __forceinline__ void init_copies(unsigned shared) {
  for (int i = 0; i < kFreeLayout.copiers; ++i) {
    mbarrier_init(shared + kFreeLayout.full + 8 * i, kWarpgroupThreads / 32);
    mbarrier_init(shared + kFreeLayout.empty + 8 * i, 1);
  }
}

// Of a part of a block of rows, whose fp32 in the workspace is `to`. `step`: that of this thread. It claims ahead of the wait, and gives the staging
// memory back before its store is complete: so who is first keeps step with who adds.
template <int kPart>
__device__ __forceinline__ void copy_part(unsigned shared, float* to, unsigned step) {
  int* const state = reinterpret_cast<int*>(to + kFusedFloats) + kPart;
  Claim seen = look_at_claim(state);
  if (seen == Claim::kNone) seen = claim(state);
  mbarrier_wait(shared + kFreeLayout.full + 8 * kPart, step & 1, "dq full");
  if (seen == Claim::kTaken) await_claim(state);
  const unsigned from = shared + kFreeLayout.staging + kPart * kFreeLayout.staging_bytes;
  to += kPart * (kFusedFloats / 2);
  if (seen == Claim::kNone)
    bulk_store(to, from, kFreeLayout.staging_bytes);
  else
    bulk_add(to, from, kFreeLayout.staging_bytes);
  tma_store_commit();
  tma_store_wait_read();
  mbarrier_arrive(shared + kFreeLayout.empty + 8 * kPart);
  if (seen != Claim::kNone) return;
  tma_store_wait();
  end_claim(state);
}

// A thread of copies, of the third or the fourth warp. It goes through each_step with few registers.
template <int kPart>
__device__ __forceinline__ void copy_dq(const AttentionArgs& args, unsigned shared) {
  unsigned step = 0;
#pragma unroll 1
  for (TakenTiles<false> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    const int steps = tile.blocks.end - tile.blocks.begin;
    int at = (tile.batch * args.num_heads_kv + tile.head) * kGqaRatio *
                 FusedWorkspace(reread(args)).blocks() +
             tile.blocks.end - 1;
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
      float* to = FusedWorkspace(reread(args)).dq(at);
#pragma unroll 1
      for (int left = steps; left > 0; --left, to -= kFusedStride)
        copy_part<kPart>(shared, to, step++);
      at += FusedWorkspace(reread(args)).blocks();
    }
  }
  tma_store_wait();
}

}  // namespace attune
