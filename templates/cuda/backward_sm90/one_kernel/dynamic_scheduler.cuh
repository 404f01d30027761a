// SPDX-License-Identifier: Apache-2.0
// Chooses the tiles that a block of the kernel that makes all gradients takes. A tile is taken only
// when all lower tiles are taken. So a block that waits for a lower tile waits for a block that
// runs. Knob scheduler:
//
// | 0 | one tile, with the block's number: the device starts blocks in that order               |
// | 2 | one tile after the other, drawn from a count in the workspace. The thread that loads Q  |
// |   | draws, and publishes tiles to the other roles in two slots of shared memory. No block   |
// |   | starts between two tiles. The next tile loads while gradients of the last are stored.   |
#pragma once

#include "cuda/backward_sm90/one_kernel/layout.cuh"
#include "cuda/backward_sm90/one_kernel/workspace.cuh"
#include "cuda/backward_sm90/tile_ring.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Draws tiles and publishes them to the other roles. Runs in the thread that loads Q and dout.
class TileDrawer {
 public:
  __device__ __forceinline__ TileDrawer(const AttentionArgs& args, unsigned shared)
      : drawn_(OneKernelWorkspace(args).drawn()), shared_(shared) {}

  __device__ __forceinline__ int next(unsigned slot, unsigned phase) const {
    const int number = atomicAdd(drawn_, 1);
    mbarrier_wait(shared_ + kOneKernelLayout.tile_empty + 8 * slot, phase ^ 1, "tile empty");
    store_shared_word(shared_ + kOneKernelLayout.tiles + 16 * slot, number);
    mbarrier_arrive(shared_ + kOneKernelLayout.tile_full + 8 * slot);
    return number;
  }

 private:
  int* drawn_;
  unsigned shared_;
};

// Takes the tiles that TileDrawer publishes, in the other roles. With kByWarp all lanes of a warp
// call it, else one thread.
template <bool kByWarp>
class TileTaker {
 public:
  __device__ __forceinline__ explicit TileTaker(unsigned shared) : shared_(shared) {}

  __device__ __forceinline__ int next(unsigned slot, unsigned phase) const {
    mbarrier_wait(shared_ + kOneKernelLayout.tile_full + 8 * slot, phase, "tile full");
    const int number =
        static_cast<int>(load_shared_word(shared_ + kOneKernelLayout.tiles + 16 * slot));
    if constexpr (kByWarp) __syncwarp();
    mbarrier_arrive_if(!kByWarp || threadIdx.x % 32 == 0,
                       shared_ + kOneKernelLayout.tile_empty + 8 * slot);
    return number;
  }

 private:
  unsigned shared_;
};

// Iterates over a role's tiles, which come from a TileDrawer or a TileTaker.
template <class Source>
class DrawnTiles {
 public:
  template <class... Args>
  __device__ __forceinline__ explicit DrawnTiles(const Args&... args) : source_(args...) {
    move();
  }
  __device__ __forceinline__ int number() const { return number_; }
  // Returns the parity of the phase of barriers that complete once per tile.
  __device__ __forceinline__ unsigned parity() const { return round_ & 1; }
  __device__ __forceinline__ void advance() {
    ++round_;
    move();
  }

 private:
  __device__ __forceinline__ void move() {
    number_ = source_.next(round_ % kOneKernelTileSlots, round_ / kOneKernelTileSlots & 1);
  }

  Source source_;
  unsigned round_ = 0;
  int number_;
};

// The readers of a drawn tile: the thread of statistics, the threads of turns or of copies of dQ,
// and the warps that multiply.
constexpr int kTileReaders = 1 + (kOrdered != 0 ? kOneKernelPlaces : kDqCopiers) + kMultiplying;

// The one tile of a block, for all roles. As many blocks are started as there are tiles.
class OneTile : public TileNumbers {
 public:
  __device__ __forceinline__ explicit OneTile(unsigned) {}
  __device__ __forceinline__ OneTile(const AttentionArgs&, unsigned) {}
};

template <bool kDraws, bool kByWarp>
struct TilesOf {
  using First = DrawnTiles<TileDrawer>;
  using Taken = DrawnTiles<TileTaker<kByWarp>>;
};
template <bool kByWarp>
struct TilesOf<false, kByWarp> {
  using First = OneTile;
  using Taken = OneTile;
};
using FirstTiles = TilesOf<kScheduler != 0, false>::First;  // of the thread that loads Q
template <bool kByWarp>
using TakenTiles = typename TilesOf<kScheduler != 0, kByWarp>::Taken;

}  // namespace attune
