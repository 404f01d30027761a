// SPDX-License-Identifier: Apache-2.0
// Adds dQ of the kernel that makes all gradients to fp32 sums in the workspace, in no fixed order.
// The sums have the layout of ordered_dq.cuh. Warpgroups write their accumulators, in register
// order, into shared memory. For each warpgroup, a thread of the producer's warpgroup adds them by
// bulk copies. Bits differ from run to run.
//
//   warpgroups:         wait dq_empty; write; a lane of each warp arrives on dq_full
//   threads of copies:  wait dq_full; store or add; arrive on dq_empty when the copy has read
//
// dK of a tile goes the same way, after dQ of the tile's last step. The first block to reach a part
// of a block of rows stores instead of adding, so the sums need not be zeroed. Other blocks wait
// until that store is complete. Under a causal mask the tiles of a head begin at different rows,
// and each is the first at its rows. Without a mask, tiles that start together follow the first of
// them one step behind. Tiles take rows in ascending order, so a tile waits only for tiles at the
// same rows or further up.
#pragma once

#include "cuda/backward_sm90/keys.cuh"
#include "cuda/backward_sm90/one_kernel/dynamic_scheduler.cuh"
#include "cuda/backward_sm90/one_kernel/workspace.cuh"
#include "cuda/backward_sm90/store_gradient.cuh"
#include "cuda/ptx/block_order.cuh"
#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Returns the address of the staging memory of a warpgroup's accumulators.
__device__ __forceinline__ unsigned dq_staging(unsigned shared, int part) {
  return shared + kUnorderedLayout.staging + part * kUnorderedLayout.staging_bytes;
}

class UnorderedDq {
 public:
  __device__ __forceinline__ explicit UnorderedDq(unsigned shared) : shared_(shared) {}

  // Adds a warpgroup's half of dQ of a block of rows.
  template <int kCount>
  __device__ __forceinline__ void add(int part, const float (&dq)[kCount]) {
    static_assert(kCount * 4 * kWarpgroupThreads == kUnorderedLayout.part_bytes);
    await_staging(part);
    const unsigned to = dq_staging(shared_, part) + reread_thread_index() % kWarpgroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      store_shared_16(to + i * 4 * kWarpgroupThreads,
                      {{__float_as_uint(dq[i]), __float_as_uint(dq[i + 1]),
                        __float_as_uint(dq[i + 2]), __float_as_uint(dq[i + 3])}});
    fence_proxy_async();
    hand_over(part);
  }

  // Stages dK of a tile's keys for the copying thread, at the end of the tile.
  template <int kCount>
  __device__ __forceinline__ void put_dk(int part, float factor, const float (&dk)[kCount]) {
    await_staging(part);
    stage_gradient<kDtypeKv>(dq_staging(shared_, part), factor, dk);
    hand_over(part);
  }

 private:
  __device__ __forceinline__ void await_staging(int part) const {
    mbarrier_wait(shared_ + kUnorderedLayout.empty + 8 * part, (step_ & 1) ^ 1, "dq empty");
  }
  __device__ __forceinline__ void hand_over(int part) {
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kUnorderedLayout.full + 8 * part);
    ++step_;
  }

  unsigned shared_;
  unsigned step_ = 0;
};

__device__ __forceinline__ void init_unordered_dq(unsigned shared) {
  for (int i = 0; i < kDsSlots; ++i)
    mbarrier_init(shared + kUnorderedLayout.ds_empty + 8 * i, kOneKernelWarps);
  for (int i = 0; i < kDqCopiers; ++i) {
    mbarrier_init(shared + kUnorderedLayout.full + 8 * i, kWarpgroupThreads / 32);
    mbarrier_init(shared + kUnorderedLayout.empty + 8 * i, 1);
  }
}

// Copies dQ to the workspace. Runs in one thread of the third or the fourth warp, which has few
// registers.
template <int kPart>
class DqCopier {
 public:
  __device__ __forceinline__ DqCopier(const AttentionArgs& args, unsigned shared)
      : args_(args), shared_(shared) {}

  // Copies dQ of a tile's steps, in the order of each_step(), then dK unless blocks leave its sums.
  __device__ __forceinline__ void copy(const KeysTile& tile, const TensorMap& map_dk) {
    const int steps = tile.blocks.end - tile.blocks.begin;
    if (steps > 0) {
      int at =
          ((tile.batch * args_.num_heads_kv + tile.head) * kGqaRatio + tile.head_begin) * blocks() +
          tile.blocks.begin;
      int of_head = steps;        // steps that are left for the head
      Claim seen = Claim::kNone;  // or not read yet: copy_rows() finds out
#pragma unroll 1
      for (int left = steps * tile.heads; left > 0; --left) {
        int next = at + 1;
        if (kGqaRatio > 1 && --of_head == 0) {
          next += blocks() - steps;
          of_head = steps;
        }
        seen = copy_rows(at, left > 1 ? next : at, seen);
        at = next;
      }
    }
    if constexpr (kSplitsHeads) return;
    await_full("dk full");
    store_panels<kHeadDimQk>(map_dk, staging(),
                             {0, tile.first_key + kPart * kWarpgroupRows, tile.head, tile.batch});
    give_back();
  }

 private:
  __device__ __forceinline__ int blocks() const {
    return OneKernelWorkspace(reread(args_)).blocks();
  }
  // Return, for block `at` of all heads, the fp32 rows in the workspace and the word of their
  // claim.
  __device__ __forceinline__ float* rows(int at) const {
    return OneKernelWorkspace(reread(args_)).dq(at) + kPart * (kOneKernelFloats / 2);
  }
  __device__ __forceinline__ int* word(int at) const {
    return OneKernelWorkspace(reread(args_)).turn(at) + kPart;
  }
  __device__ __forceinline__ unsigned staging() const { return dq_staging(shared_, kPart); }

  // Copies this thread's part of block `at`, whose claim was read as `seen`. Returns the claim of
  // block `next`, read during the copy. It claims before it waits, and releases the staging memory
  // before its store is complete. So the first copier is as fast as the copiers that add.
  __device__ __forceinline__ Claim copy_rows(int at, int next, Claim seen) {
    if (seen == Claim::kNone) seen = claim(word(at));
    await_full("dq full");
    if (seen == Claim::kTaken) await_claim(word(at));
    if (seen == Claim::kNone)
      bulk_store(rows(at), staging(), kUnorderedLayout.part_bytes);
    else
      bulk_add(rows(at), staging(), kUnorderedLayout.part_bytes);
    tma_store_commit();
    const Claim of_next = glance_at_claim(word(next));
    give_back();
    if (seen == Claim::kNone) {
      tma_store_wait();
      end_claim(word(at));
    }
    return of_next;
  }

  __device__ __forceinline__ void await_full(const char* name) {
    mbarrier_wait(shared_ + kUnorderedLayout.full + 8 * kPart, step_++ & 1, name);
  }

  __device__ __forceinline__ void give_back() const {
    tma_store_wait_read();
    mbarrier_arrive(shared_ + kUnorderedLayout.empty + 8 * kPart);
  }

  const AttentionArgs& args_;
  unsigned shared_;
  unsigned step_ = 0;
};

template <int kPart>
__device__ __forceinline__ void copy_dq(const AttentionArgs& args, unsigned shared,
                                        const TensorMap& map_dk) {
  DqCopier<kPart> copier(args, shared);
#pragma unroll 1
  for (TakenTiles<false> tiles(shared); tiles.number() < args.num_tiles; tiles.advance())
    copier.copy(keys_tile(args, tiles.number()), map_dk);
  tma_store_wait();
}

}  // namespace attune
