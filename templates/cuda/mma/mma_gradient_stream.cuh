// SPDX-License-Identifier: Apache-2.0
// Tiles of the mma.sync gradient kernels: the tile that a block keeps, the order of the steps that
// stream past it, and the ring in shared memory that cp.async fills.
#pragma once

#include "cuda/mma/tile_copy.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/row_blocks.cuh"
#include "cuda/parts/row_sums.cuh"
#include "cuda/parts/section_order.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/layouts/backward_sm80_layout.h"

namespace attune {

// The argument parts of a kernel.
struct GradientParts {
  const AttentionArgs& base;
  const GradientArgs& gradients;
  Reference<ScoreArgs> scores;
  Reference<DropoutArgs> dropout;
};

// The sizes and tiles of a gradient kernel: kKeysStay says which side stays, kHasSecond whether a
// second tile (V or dout) stays too.
template <bool kKeysStay, bool kHasSecond>
struct GradientSide {
  static constexpr int kStayRows = kKeysStay ? kKeyBlockN : kBlockM;
  static constexpr int kStepRows = kKeysStay ? kKeyBlockM : kBlockN;
  static constexpr int kWarps = kKeysStay ? kKeyWarps : attune::kWarps;
  static constexpr int kKvSlots = kKeysStay ? kQSlots : attune::kKvSlots;
  static constexpr BackwardSm80Layout kLayout = backward_sm80_layout(
      {kStayRows, kStepRows, kWarps, kKvSlots, kHeadDimQk, kHeadDimV, kHasSecond, kKeysStay});
  static constexpr int kWarpRows = 16 * kLayout.row_tiles;
  static_assert(kStayRows == kWarps * kWarpRows && kLayout.row_tiles >= 1,
                "tiles that stay have a multiple of 16 rows for each warp");
  static_assert(kStepRows % 16 == 0, "a step is a multiple of 16 rows, the depth of one product");

  // Returns this block's tile; its head is one of K if keys stay, else one of Q. Under a causal
  // mask the longest tiles go first: the last rows see most keys, and the first keys are seen by
  // most rows.
  static __device__ __forceinline__ Tile tile(const AttentionArgs& args) {
    const int blocks = max(1, (stay_length(args) + kStayRows - 1) / kStayRows);
    const int number = static_cast<int>(blockIdx.x);
    if constexpr (kKeysStay) {
      const TilePlace place =
          place_of(number, blocks, args.num_heads_kv, args.batch, args.seqlen_q * kGqaRatio);
      return {place.block, place.head, place.batch};
    }
    const TilePlace place =
        place_of(number, blocks, args.num_heads_q, args.batch, args.seqlen_kv / kGqaRatio);
    return {kIsCausal ? blocks - 1 - place.block : place.block, place.head, place.batch};
  }

  // Returns the number of keys if keys stay, else the number of rows.
  static __device__ __forceinline__ int stay_length(const AttentionArgs& args) {
    return kKeysStay ? args.seqlen_kv : args.seqlen_q;
  }

  // Returns the blocks of steps that `count` rows or keys from `first` on visit.
  static __device__ __forceinline__ BlockRange blocks(const AttentionArgs& args, int first,
                                                      int count) {
    const int end = min(first + count, stay_length(args));
    if constexpr (kKeysStay) return row_blocks<kStepRows>(args, first, end);
    return visible_blocks<kStepRows>(args, first, end);
  }
};

// A step: a block of rows or keys, and the head of the operands that stream.
struct StepCursor {
  int block;
  int head;
  __device__ __forceinline__ void advance(const BlockRange& all) {
    if (++block < all.end) return;
    block = all.begin;
    ++head;
  }
};

// The elements of a step that a thread has.
template <bool kKeysStay>
struct ElementPlace {
  int batch;
  int head;    // head of Q
  int stay;    // this thread's first row, or key, that stays; others are 16 m and 16 m + 8 below
  int column;  // its first column of the step; others are 8 n and 8 n + 1 further on
};

// True if copies use cp.async (from sm_80 on). Before sm_80 a copy goes through registers and is
// done when the call returns.
constexpr bool kCopiesAhead = kArch >= 80;
static_assert(kCopiesAhead || (kKvSlots == 1 && kQSlots == 1),
              "without cp.async nothing is copied ahead");

template <int kPrefetchBytes>
__device__ __forceinline__ void copy_16(unsigned to, const void* from, int bytes) {
  if constexpr (kCopiesAhead) {
    cp_async_16<kPrefetchBytes>(to, from, bytes);
  } else {
    Vector16 value{{0, 0, 0, 0}};
    if (bytes > 0) value = *static_cast<const Vector16*>(from);
    store_shared_16(to, value);
  }
}
__device__ __forceinline__ void end_copies() {
  if constexpr (kCopiesAhead) cp_async_commit();
}
template <int kPending>
__device__ __forceinline__ void await_copies() {
  if constexpr (kCopiesAhead) cp_async_wait<kPending>();
}

template <bool kKeysStay, bool kHasSecond>
class GradientStream {
  using Side = GradientSide<kKeysStay, kHasSecond>;
  static constexpr BackwardSm80Layout kLayout = Side::kLayout;
  static constexpr int kKvSlots = Side::kKvSlots;
  using StayFirst = TileCopy<kHeadDimQk, Side::kStayRows, kLayout.threads>;
  using StaySecond = TileCopy<kHeadDimV, Side::kStayRows, kLayout.threads>;
  using StepFirst = TileCopy<kHeadDimQk, Side::kStepRows, kLayout.threads>;
  using StepSecond = TileCopy<kHeadDimV, Side::kStepRows, kLayout.threads>;

 public:
  __device__ __forceinline__ GradientStream(const GradientParts& parts, const Tile& tile,
                                            const BlockRange& all, unsigned shared)
      : parts_(parts),
        all_(all),
        batch_(tile.batch),
        shared_(shared),
        left_(max(0, all.end - all.begin) * (kKeysStay ? kGqaRatio : 1)),
        next_(first_step(tile, all)) {}

  static __device__ __forceinline__ StepCursor first_step(const Tile& tile, const BlockRange& all) {
    return {all.begin, kKeysStay ? tile.head * kGqaRatio : tile.head / kGqaRatio};
  }
  __device__ __forceinline__ int steps() const { return left_; }

  // Loads the tiles that stay and starts to load the first steps. Call this first, if there are
  // steps.
  __device__ __forceinline__ void start(const Tile& tile) {
    const AttentionArgs& args = parts_.base;
    const int first_row = tile.row_block * Side::kStayRows, length = Side::stay_length(args);
    StayFirst(kKeysStay ? args.k : args.q, length)
        .each(tile.batch, tile.head, first_row, copy_to(shared_));
    if constexpr (kHasSecond)
      StaySecond(kKeysStay ? args.v : parts_.gradients.dout, length)
          .each(tile.batch, tile.head, first_row, copy_to(shared_ + kLayout.second));
    end_copies();
#pragma unroll
    for (int slot = 0; slot < kKvSlots - 1; ++slot) load(slot);
  }

  // Returns the shared address of this step's slot. The slot holds the step until the next call.
  __device__ __forceinline__ unsigned acquire() {
    if constexpr (kKvSlots == 1) {
      __syncthreads();
      load(0);
      await_copies<0>();
      __syncthreads();
      return slot(0);
    } else {
      await_copies<kKvSlots - 2>();
      __syncthreads();
      load(slot_ == 0 ? kKvSlots - 1 : slot_ - 1);
      const unsigned here = slot(slot_);
      slot_ = slot_ + 1 == kKvSlots ? 0 : slot_ + 1;
      return here;
    }
  }

 private:
  static __device__ __forceinline__ auto copy_to(unsigned target) {
    return [target](int, const char* source, unsigned offset, int bytes) {
      copy_16<128>(target + offset, source, bytes);
    };
  }
  __device__ __forceinline__ unsigned slot(int number) const {
    return shared_ + kLayout.ring + number * kLayout.slot_bytes;
  }

  // Starts to load the next step, if there is one.
  __device__ __forceinline__ void load(int number) {
    if (left_ > 0) {
      const AttentionArgs& args = parts_.base;
      const unsigned to = slot(number);
      const int first_row = next_.block * Side::kStepRows;
      const int length = kKeysStay ? args.seqlen_q : args.seqlen_kv;
      StepFirst(kKeysStay ? args.q : args.k, length)
          .each(batch_, next_.head, first_row, copy_to(to));
      StepSecond(kKeysStay ? parts_.gradients.dout : args.v, length)
          .each(batch_, next_.head, first_row, copy_to(to + kLayout.slot_second));
      if constexpr (kKeysStay) load_sums(to, first_row);
      next_.advance(all_);
      --left_;
    }
    end_copies();
  }

  // Loads L2 and delta of the step's rows. It needs no bounds check: the workspace is padded to
  // whole steps.
  __device__ __forceinline__ void load_sums(unsigned to, int first_row) const {
    constexpr int kChunks = Side::kStepRows / 4;  // chunks of 16 bytes in L2, and in delta
    const int thread = reread_thread_index();
    if (thread >= 2 * kChunks) return;
    const int of_delta = thread / kChunks, chunk = thread % kChunks;
    const float* const sums = row_sums(parts_.base, batch_, next_.head) + first_row + 4 * chunk +
                              (of_delta ? padded_rows(parts_.base) : 0);
    copy_16<0>(to + (of_delta ? kLayout.slot_delta : kLayout.slot_l2) + 16 * chunk, sums, 16);
  }

  const GradientParts& parts_;
  BlockRange all_;
  int batch_;
  unsigned shared_;
  int left_;  // steps that are not loaded yet
  StepCursor next_;
  int slot_ = 0;
};

}  // namespace attune
