// SPDX-License-Identifier: Apache-2.0
// The K and V pipeline of GPUs without cp.async (interface: kv_pipeline_async.cuh). Each tile is
// fetched to registers before the product that precedes it, and put into shared memory after that
// product. So arithmetic covers its latency.
//   share_kv = 0: one slot for K and one for V, with one barrier per tile.
//   share_kv = 1: one slot for both, with two barriers per tile.
#pragma once

#include "cuda/mma/block_walk.cuh"  // where kMaskProgram, else none/
#include "cuda/mma/tile_state.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/parts/v_slice.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

class PlainKvPipeline : public BlockWalk {
  static constexpr int kVOffset = kShareKv ? 0 : prefill_sm80_k_bytes(kLayout);
  static constexpr int kStaged = KCopy::kCopies > VCopy::kCopies ? KCopy::kCopies : VCopy::kCopies;

 public:
  static constexpr bool kPairs = false;  // K and V each have their barriers

  __device__ PlainKvPipeline(const AttentionArgs& args, const TileState& state, unsigned ring,
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
             store_shared_16(target + offset, fetched(source, bytes));
           });
  }

  template <bool kStarted>
  static __device__ void wait_q() {
    __syncthreads();
  }

  // Starts to load the blocks before `end`; the state need not be readable yet.
  __device__ void start(const Tile& tile, int end) { fetch(k_, tile, end - 1); }

  // Returns the shared address of the K tile of `block`. It is valid until the matching acquire_v.
  __device__ unsigned acquire_k(int block) {
    to_place(&block);
    put(k_, ring_);
    v_.begin_at(first_v_column(blockIdx.x));
    fetch(v_, state_.tile(), block);
    return ring_;
  }

  // Does nothing: acquire_k and acquire_v have already begun their fetches.
  __device__ void prefetch(int) {}

  // Returns the shared address of the V tile of `block`. It is valid until the next acquire_k.
  __device__ unsigned acquire_v(int block) {
    leave(&block);
    const unsigned slot = ring_ + kVOffset;
    put(v_, slot);
    fetch(k_, state_.tile(), block - 1);
    return slot;
  }

 private:
  static __device__ __forceinline__ Vector16 fetched(const char* source, int bytes) {
    return bytes > 0 ? *reinterpret_cast<const Vector16*>(source) : Vector16{};
  }

  template <class Copy>
  __device__ __forceinline__ void fetch(const Copy& operand, const Tile& tile, int block) {
    if (kMaskProgram && block < 0) return;
    to_block(&block);
    if (block < begin_) return;
    operand.each(tile.batch, tile.head / kGqaRatio, block * kBlockN,
                 [this](int index, const char* source, unsigned, int bytes) {
                   staged_[index] = fetched(source, bytes);
                 });
  }

  template <class Copy>
  __device__ __forceinline__ void put(const Copy& operand, unsigned slot) {
    if constexpr (kShareKv) __syncthreads();
    operand.each(0, 0, 0, [this, slot](int index, const char*, unsigned offset, int) {
      store_shared_16(slot + offset, staged_[index]);
    });
    __syncthreads();
  }

  KCopy k_;
  VCopy v_;
  TileState state_;
  unsigned ring_;
  int begin_;
  Vector16 staged_[kStaged];  // the next tile, on its way from global to shared memory
};

}  // namespace attune
