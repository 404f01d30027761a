// SPDX-License-Identifier: Apache-2.0
// A tile of V that prefill_sm90_fp8 transposes in shared memory
// (templates/cuda/prefill_sm90_fp8/fp8_tile_transposer.cuh), compiled for the host, where 32
// threads are a warp: every byte is where wgmma looks for it. One program per tile:
// ATTUNE_TEST_BLOCK_N and ATTUNE_TEST_HEAD_DIM.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#define __device__
#define __forceinline__ inline

#include "templates/shared/attention_enums.h"

namespace attune {
constexpr Dtype kDtypeKv = Dtype::kE4m3;
constexpr int kBlockM = 64, kBlockN = ATTUNE_TEST_BLOCK_N, kBlocksPerSm = 1, kKvSlots = 2;
constexpr int kKvRing = 0, kKParts = 1, kOStaging = 0, kScheduler = 1, kKvSplits = 1,
              kPackHeads = 1;
constexpr int kHeadDimQk = 64, kHeadDimV = ATTUNE_TEST_HEAD_DIM;
constexpr int kTransposeInside = 1;
}  // namespace attune

#include "cuda/prefill_sm90_fp8/fp8_tile_transposer.cuh"

namespace attune {
namespace {

// The swizzle as TMA and wgmma define it: bits of the address, not of rows and chunks.
unsigned swizzled(unsigned address, int row_bytes) {
  const unsigned mask = static_cast<unsigned>(row_bytes) / 16 - 1;
  return address ^ (address >> 7 & mask) << 4;
}

unsigned given_at(int key, int column) {
  const int row = kLayout.row_given, panel = column / row;
  return swizzled(static_cast<unsigned>(panel * kBlockN * row + key * row + column % row), row);
}

unsigned transposed_at(int byte, int column) {
  const int row = kLayout.row_v, panel = byte / row;
  return swizzled(static_cast<unsigned>((panel * kHeadDimV + column) * row + byte % row), row);
}

TEST(TileTransposer, PutsEveryByteWhereWgmmaLooksForIt) {
  constexpr unsigned kTransposed = static_cast<unsigned>(kLayout.given_bytes);
  shared_memory.assign(kTransposed + static_cast<size_t>(kLayout.v_slot_bytes) + 1024, 0xee);
  std::mt19937 random(7);
  for (unsigned i = 0; i < kTransposed; ++i)
    shared_memory[i] = static_cast<unsigned char>(random());
  const std::vector<unsigned char> given(shared_memory.begin(),
                                         shared_memory.begin() + kTransposed);
  for (int warp = 0; warp < kIdleWarps; ++warp) {
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < 32; ++lane)
      lanes.emplace_back([=] {
        host_thread = 32 * (warp + 1) + lane;
        TileTransposer().run(0, kTransposed, warp);
      });
    for (std::thread& lane : lanes) lane.join();
  }
  for (int column = 0; column < kHeadDimV; ++column)
    for (int at = 0; at < kBlockN; ++at) {
      const int byte = at % 16, r = byte % 4;
      const int key = at - byte + byte / 4 * 2 + r % 2 + r / 2 * 8;
      ASSERT_EQ(shared_memory[kTransposed + transposed_at(at, column)],
                given[given_at(key, column)])
          << "column " << column << " byte " << at;
    }
  for (size_t i = kTransposed + static_cast<size_t>(kHeadDimV * kBlockN); i < shared_memory.size();
       ++i)
    ASSERT_EQ(shared_memory[i], 0xee) << "written past the tile";
}

}  // namespace
}  // namespace attune
