// SPDX-License-Identifier: Apache-2.0
// What dropout keeps of the steps of an sm_90 kernel, made by warps of the producing warpgroup that have nothing else to do, because it
// follows from where a step stands alone, and calls of Philox are a chain of instructions too long for warps in a hurry:
//
//   producer, one thread: wait read[slot], tell where the step stands, arrive on told[slot]
//   makers, whole warps:  wait told[slot], write words, arrive on made[slot]
//   consumer warps:       wait made[slot], load words, arrive on read[slot]
//   at the end:           the producer tells of a step that is none
//
// Layout: shared/dropout_ring.h.
#pragma once

#include "cuda/attention/dropout_squares.cuh"
#include "cuda/ptx/load_shared_word.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/shared_word.cuh"
#include "shared/dropout_ring.h"

namespace attune {

// One side's place in the ring of a block whose tile has kStayRows rows that stay, queries or keys, and whose steps have kStepColumns
// columns. The 64 rows of a warpgroup are kHeadRows, whole 16s, of each of some heads.
template <int kStayRows, int kStepColumns, bool kKeysStay, int kHeadRows = 64>
class DropoutRing {
  static constexpr int kStrips = kStayRows / 16;  // a warp's rows each
  static constexpr int kHeadStrips = kHeadRows / 16;
  static constexpr int kSlotBytes = dropout_slot_bytes(kStayRows, kStepColumns);
  static constexpr int kPlaces = kDropoutSlots * kSlotBytes;
  static constexpr int kTold = kPlaces + kDropoutSlots * kDropoutPlaceBytes;
  static constexpr int kMade = kTold + 8 * kDropoutSlots;
  static constexpr int kRead = kMade + 8 * kDropoutSlots;
  static_assert(kStayRows % 64 == 0 && kHeadRows % 16 == 0, "strips of 16 rows of one head");

 public:
  using Squares = DropoutSquares<kStepColumns / 16, kKeysStay>;

  // From a multiple of 16 on.
  __device__ __forceinline__ explicit DropoutRing(unsigned shared) : shared_(shared) {}

  // By one thread, ahead of a fence and a barrier of the block.
  __device__ __forceinline__ void init_barriers(int maker_warps) const {
    for (int i = 0; i < kDropoutSlots; ++i) {
      mbarrier_init(shared_ + kTold + 8 * i, 1);
      mbarrier_init(shared_ + kMade + 8 * i, maker_warps);
      mbarrier_init(shared_ + kRead + 8 * i, kStrips);
    }
  }

  // The producer. `head`: the tile's first one, of all batch entries.
  __device__ __forceinline__ void tell(int row, int key, unsigned head) { tell(row, key, head, 0); }
  __device__ __forceinline__ void stop() { tell(0, 0, 0, 1); }

  // Warp `maker` of `makers`, until the producer stops.
  __device__ __forceinline__ void make(const DropoutArgs& args, int maker, int makers) {
    const DropoutSource source(args);
#pragma unroll 1
    while (true) {
      mbarrier_wait(shared_ + kTold + 8 * slot(), parity(), "dropout told");
      if (load_shared_word(place_address() + 12) != 0) return;
#pragma unroll 1
      for (int i = maker; i < kStrips * Squares::kWords / 2; i += makers) make_two(source, 2 * i);
      __syncwarp();
      mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kMade + 8 * slot());
      advance();
    }
  }

  // Consumers, whole warps: of the step to come. `warp` counts those of all warpgroups.
  __device__ __forceinline__ void take(int warp, Squares* squares) {
    mbarrier_wait(shared_ + kMade + 8 * slot(), parity(), "dropout made");
    const unsigned from = word_address(warp, 0);
#pragma unroll
    for (int i = 0; i < Squares::kWords; ++i)
      squares->words()[i] = load_shared_word(from + i * kStrips * 128);
    give_back();
  }

  __device__ __forceinline__ void skip() {
    mbarrier_wait(shared_ + kMade + 8 * slot(), parity(), "dropout made");
    give_back();
  }

 private:
  __device__ __forceinline__ int slot() const { return state_ >> 1; }
  __device__ __forceinline__ unsigned parity() const { return state_ & 1; }
  __device__ __forceinline__ void advance() {
    state_ += 2;
    if (state_ >= 2 * kDropoutSlots) state_ = (state_ - 2 * kDropoutSlots) ^ 1;
  }

  __device__ __forceinline__ void tell(int row, int key, unsigned head, unsigned stop) {
    mbarrier_wait(shared_ + kRead + 8 * slot(), parity() ^ 1, "dropout read");
    store_shared_16(place_address(),
                    {{static_cast<unsigned>(row), static_cast<unsigned>(key), head, stop}});
    mbarrier_arrive(shared_ + kTold + 8 * slot());
    advance();
  }

  __device__ __forceinline__ void give_back() {
    __syncwarp();
    mbarrier_arrive_if(threadIdx.x % 32 == 0, shared_ + kRead + 8 * slot());
    advance();
  }

  __device__ __forceinline__ unsigned place_address() const {
    return shared_ + kPlaces + kDropoutPlaceBytes * slot();
  }

  // A lane's word `word` of a strip.
  __device__ __forceinline__ unsigned word_address(int strip, int word) const {
    const unsigned lane = static_cast<unsigned>(reread_thread_index()) % 32;
    return shared_ + slot() * kSlotBytes + (word * kStrips + strip) * 128 + lane * 4;
  }

  // Two words of each lane, side by side: each is a chain of instructions. Words count strip after strip.
  __device__ __forceinline__ void make_two(const DropoutSource& source, int first) const {
    using Exchange = DropoutExchange<4, kKeysStay>;
    const unsigned lane = static_cast<unsigned>(reread_thread_index()) % 32;
    const Vector16 place = load_shared_16(place_address());
    unsigned words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned strip = (first + i) / Squares::kWords;
      const unsigned column = (first + i) % Squares::kWords * 4 + Exchange::own_square(lane);
      DropoutSquare square{place.word[2], place.word[0] / 16, place.word[1] / 16};
      if constexpr (kKeysStay) {
        square.rows16 += column;
        square.cell += strip;
      } else {
        const unsigned inside = strip % 4;
        square.head += inside / kHeadStrips;
        square.rows16 += strip / 4 * kHeadStrips + inside % kHeadStrips;
        square.cell += column;
      }
      words[i] = Exchange::make(source, square, lane);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      store_shared_word(word_address((first + i) / Squares::kWords, (first + i) % Squares::kWords),
                        static_cast<int>(words[i]));
  }

  unsigned shared_;
  int state_ = 0;  // slot and parity
};

}  // namespace attune
