// SPDX-License-Identifier: Apache-2.0
// Loads Q once, then K and V block after block, from the last visible block down, through a ring in
// shared memory that cp.async fills. Every pipeline has this interface: load_q, start, then for
// each block in turn acquire_k, prefetch, acquire_v. It is also the walk over the blocks.
//   Pairs (share_kv = 0, kv_slots >= 2): K and V of a block arrive together, with one barrier per
//     block. kv_slots - 1 blocks are in flight.
//   Else: K and V arrive one by one, with one barrier each. All slots but one are in flight; if
//     there is one slot, none is.
// QCopy, KCopy and VCopy, which copy tiles, are defined by operands_*.cuh of the element width.
#pragma once

#include "cuda/mma/block_walk.cuh"  // where kMaskProgram, else none/
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/parts/v_slice.cuh"
#include "cuda/ptx/cp_async.cuh"

namespace attune {

class AsyncKvPipeline : public BlockWalk {
 public:
  // K and V of a block arrive together: one barrier a block, none between the products.
  static constexpr bool kPairs = kShareKv == 0 && kKvSlots >= 2;

 private:
  static constexpr int kSlots = kShareKv ? kKvSlots : 2 * kKvSlots;
  static constexpr int kAhead = kPairs ? kKvSlots - 1 : kSlots - 1;  // groups of copies in flight
  static constexpr int kKBytes = prefill_sm80_k_bytes(kLayout);
  static constexpr int kVBytes = prefill_sm80_v_bytes(kLayout);
  static constexpr int kOperandK = 0;
  static constexpr int kOperandV = 1;

 public:
  __device__ AsyncKvPipeline(const AttentionArgs& args, const TileState& state, unsigned ring,
                             int first_block, const BlockList& list)
      : BlockWalk(list),
        k_(args.k, args.seqlen_kv),
        v_(args.v, args.seqlen_kv),
        state_(state),
        ring_(ring),
        begin_(first_block) {}

  // Loads Q to `target`. The caller's thread must not read it before wait_q, or before the first
  // acquire_k.
  static __device__ void load_q(const AttentionArgs& args, const Tile& tile, unsigned target) {
    const QCopy q(args.q, args.seqlen_q);
    q.each(tile.batch, tile.head, tile.row_block * kBlockM,
           [target](int, const char* source, unsigned offset, int bytes) {
             cp_async_16<kLoadHint>(target + offset, source, bytes);
           });
    if constexpr (kQPlace != kQShared) cp_async_commit();
    make_q_near(q, tile, target);
  }

  // Waits until all threads of the block may read Q. kStarted: start() was called after load_q().
  template <bool kStarted>
  static __device__ void wait_q() {
    cp_async_wait<kStarted ? kAhead : 0>();
    __syncthreads();
  }

  // Starts to load the blocks before `end`; the state need not be readable yet.
  __device__ void start(const Tile& tile, int end) {
    v_.begin_at(first_v_column(blockIdx.x));
#pragma unroll
    for (int group = 0; group < kAhead; ++group) {
      if constexpr (kPairs) {
        load<kOperandK>(tile, end - 1 - group, group);
        load<kOperandV>(tile, end - 1 - group, group);
      } else {
        if (group % 2 == 0) load<kOperandK>(tile, end - 1 - group / 2, group);
        if (group % 2 == 1) load<kOperandV>(tile, end - 1 - group / 2, group);
      }
      cp_async_commit();
    }
  }

  // Returns the shared address of the K tile of `block`. It is valid until the matching acquire_v
  // (pairs: until the next acquire_k).
  __device__ unsigned acquire_k(int block) {
    to_place(&block);
    if constexpr (!kPairs) return acquire<kOperandK>(block);
    cp_async_wait<kAhead - 1>();
    __syncthreads();
    return slot_address<kOperandK>(slot_);
  }

  // Starts the loads that acquire_k(block) made room for. Pairs only: single operands are
  // prefetched as they are acquired.
  __device__ void prefetch(int block) {
    if constexpr (!kPairs) return;
    to_place(&block);
    const Tile tile = state_.tile();
    load<kOperandK>(tile, block - kAhead, write_slot());
    load<kOperandV>(tile, block - kAhead, write_slot());
    cp_async_commit();
  }

  // Returns the shared address of the V tile of `block`. It is valid until the next acquire_k.
  __device__ unsigned acquire_v(int block) {
    leave(&block);
    if constexpr (!kPairs) return acquire<kOperandV>(block);
    const unsigned address = slot_address<kOperandV>(slot_);
    slot_ = slot_ + 1 == kKvSlots ? 0 : slot_ + 1;
    return address;
  }

 private:
  template <int kOperand>
  __device__ __forceinline__ unsigned acquire(int block) {
    const Tile tile = state_.tile();  // read while waiting
    if constexpr (kSlots == 1) {
      __syncthreads();
      load<kOperand>(tile, block, 0);
      cp_async_commit();
      cp_async_wait<0>();
      __syncthreads();
      return ring_;
    }
    cp_async_wait<(kAhead > 0 ? kAhead - 1 : 0)>();
    __syncthreads();
    constexpr int kLaterBlocks = (kOperand + kAhead) / 2;
    load<(kOperand + kAhead) % 2>(tile, block - kLaterBlocks, write_slot());
    cp_async_commit();
    const unsigned address = slot_address<kOperand>(slot_);
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    return address;
  }

  static constexpr int kRing = kPairs ? kKvSlots : kSlots;
  __device__ int write_slot() const { return slot_ == 0 ? kRing - 1 : slot_ - 1; }

  // Returns the shared address of a slot. `slot` numbers pairs if K and V are in pairs, else single
  // slots.
  template <int kOperand>
  __device__ __forceinline__ unsigned slot_address(int slot) const {
    if constexpr (kShareKv) return ring_ + slot * (kKBytes > kVBytes ? kKBytes : kVBytes);
    const int pair = kPairs ? slot : slot / 2;
    return ring_ + pair * (kKBytes + kVBytes) + (kOperand == kOperandV ? kKBytes : 0);
  }

  template <int kOperand>
  __device__ __forceinline__ void load(const Tile& tile, int block, int slot) const {
    if (kMaskProgram && block < 0) return;
    to_block(&block);
    if (block < begin_) return;
    const unsigned target = slot_address<kOperand>(slot);
    const auto copy = [target](int, const char* source, unsigned offset, int bytes) {
      cp_async_16<kLoadHint>(target + offset, source, bytes);
    };
    if constexpr (kOperand == kOperandK) {
      k_.each(tile.batch, tile.head / kGqaRatio, block * kBlockN, copy);
    } else {
      v_.each(tile.batch, tile.head / kGqaRatio, block * kBlockN, copy);
    }
  }

  KCopy k_;
  VCopy v_;
  TileState state_;
  unsigned ring_;
  int begin_;
  int slot_ = 0;
};

}  // namespace attune
