// SPDX-License-Identifier: Apache-2.0
// Adds dQ of the kernel that makes all gradients to fp32 sums in the workspace, in register order.
// Blocks of keys add to a block of rows in the order of keys, so that every run gives the same
// bits. Two threads of the producer's warpgroup wait for alternate turns, because a turn takes
// about as long as a step. The first block of keys stores instead of adding, so the sums need not
// be zeroed.
//
//   thread of turns:  wait for the turn in global memory; write the place; arrive on turn[place];
//                     wait added[place]; end the turn
//   warpgroups:       wait turn[place]; add; a lane of each warp arrives on added[place]
//
// The lanes' additions are ordered before the end of the turn, because the lanes arrive on the
// barrier that the thread of turns awaits (PTX ISA 8.8, causality order).
#pragma once

#include "cuda/backward_sm90/keys.cuh"
#include "cuda/backward_sm90/one_kernel/dq_order.cuh"
#include "cuda/backward_sm90/one_kernel/dynamic_scheduler.cuh"
#include "cuda/backward_sm90/one_kernel/workspace.cuh"
#include "cuda/ptx/block_order.cuh"
#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// A role's position in the sequence of turns.
class OrderedDq {
 public:
  __device__ __forceinline__ explicit OrderedDq(unsigned shared) : shared_(shared) {}

  __device__ __forceinline__ int place() const {
    return static_cast<int>(turn_ % kOneKernelPlaces);
  }
  __device__ __forceinline__ void advance() { ++turn_; }

  // Publishes the address to which dQ is added. Called by the thread of turns. `first`: nothing was
  // added to it before.
  __device__ __forceinline__ void tell_turn(float* to, bool first) const {
    const unsigned long long address = reinterpret_cast<unsigned long long>(to);
    store_shared_16(word(), {{static_cast<unsigned>(address), static_cast<unsigned>(address >> 32),
                              static_cast<unsigned>(first), 0u}});
    mbarrier_arrive(shared_ + kOneKernelLayout.turn + 8 * place());
  }
  __device__ __forceinline__ void await_added() const {
    mbarrier_wait(shared_ + kOneKernelLayout.added + 8 * place(), phase(), "dq added");
  }

  // Adds a warpgroup's half of dQ of a block of rows, or all of dQ.
  template <int kCount>
  __device__ __forceinline__ void add(int half, const float (&dq)[kCount]) {
    mbarrier_wait(shared_ + kOneKernelLayout.turn + 8 * place(), phase(), "dq turn");
    const Vector16 told = load_shared_16(word());
    const unsigned long long address = told.word[0] | static_cast<unsigned long long>(told.word[1])
                                                          << 32;
    float* const to = reinterpret_cast<float*>(address) + half * (kOneKernelFloats / 2) +
                      reread_thread_index() % kWarpgroupThreads * 4;
    if (told.word[2] != 0) {
#pragma unroll
      for (int i = 0; i < kCount; i += 4)
        *reinterpret_cast<float4*>(to + i * kWarpgroupThreads) =
            make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; i += 4)
        add_four(to + i * kWarpgroupThreads, dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
    }
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kOneKernelLayout.added + 8 * place());
    advance();
  }

 private:
  __device__ __forceinline__ unsigned word() const {
    return shared_ + kOneKernelLayout.places + 16 * place();
  }
  __device__ __forceinline__ unsigned phase() const { return turn_ / kOneKernelPlaces & 1; }

  unsigned shared_;
  unsigned turn_ = 0;
};

// Takes the turn of block `key_block` of keys at block `row_block` of rows, which is block `at` of
// all heads.
__device__ __forceinline__ void take_turn(const AttentionArgs& args, const OrderedDq& places,
                                          int key_block, int row_block, int at) {
  const int turn = dq_turn<kKeyBlockM, kKeyBlockN>(reread(args), key_block, row_block);
  await_turn(OneKernelWorkspace(reread(args)).turn(at), turn);
  places.tell_turn(OneKernelWorkspace(reread(args)).dq(at), turn == 0);
  places.await_added();
  end_turn(OneKernelWorkspace(reread(args)).turn(at));
}

// Runs in a thread of turns, in the third or the fourth warp. It goes through each_step with few
// registers.
__device__ __forceinline__ void take_turns(const AttentionArgs& args, unsigned shared) {
  OrderedDq places(shared);
#pragma unroll 1
  for (TakenTiles<false> tiles(shared); tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number());
    const int key_block = tile.first_key / kKeyBlockN;
    const int begin = tile.blocks.begin, end = max(begin, tile.blocks.end);
    int first = ((tile.batch * args.num_heads_kv + tile.head) * kGqaRatio + tile.head_begin) *
                OneKernelWorkspace(reread(args)).blocks();
#pragma unroll 1
    for (int head = 0; head < tile.heads; ++head) {
#pragma unroll 1
      for (int block = end - 1; block >= begin; --block) {
        if (places.place() == reread_thread_index() / 32 - 2)
          take_turn(args, places, key_block, block, first + block);
        places.advance();
      }
      first += OneKernelWorkspace(reread(args)).blocks();
    }
  }
}

}  // namespace attune
