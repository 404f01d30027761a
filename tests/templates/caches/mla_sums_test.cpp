// SPDX-License-Identifier: Apache-2.0
// The end of a tile in mla_sm90 (templates/cuda/mla_sm90/mla_sums.cuh), compiled for the host with
// one thread per warpgroup. One warpgroup is slow after the barrier; the other must not wait for it
// before the end of the next tile.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <semaphore>
#include <thread>

#define __device__
#define __forceinline__ inline

namespace {

struct Index {
  unsigned x;
};
constexpr Index threadIdx{0};

int __float_as_int(float value) {
  int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

#include "cuda/mla_sm90/mla_sums.cuh"

namespace attune {
namespace {

TEST(MlaSums, ASlowHalfReadsTheSumsOfItsOwnTile) {
  constexpr MlaSm90Layout kLayout = mla_sm90_layout(576);
  shared_memory.assign(static_cast<size_t>(kLayout.bytes), 0);
  std::barrier meet(2);
  std::binary_semaphore stored(0);  // the first half has left its sums of the second tile
  float found[2][2][2];             // of a half and a tile
  const auto half = [&](int number) {
    for (unsigned tile = 0; tile < 2; ++tile) {
      float(&sums)[2] = found[number][tile];
      sums[0] = static_cast<float>(1 + number + 10 * tile);
      sums[1] = 100 * sums[0];
      at_named_barrier = [&] {
        if (number == 0 && tile == 1) stored.release();
        meet.arrive_and_wait();
        if (number == 1 && tile == 0) stored.acquire();
      };
      add_sums_of_halves(kLayout.sums, tile, number, 5, sums);
    }
  };
  std::thread first(half, 0), second(half, 1);
  first.join(), second.join();
  for (int number = 0; number < 2; ++number)
    for (int tile = 0; tile < 2; ++tile) {
      EXPECT_EQ(found[number][tile][0], 3.0F + 20.0F * static_cast<float>(tile));
      EXPECT_EQ(found[number][tile][1], 300.0F + 2000.0F * static_cast<float>(tile));
    }
}

TEST(MlaSums, TwoTilesHaveRoom) {
  constexpr MlaSm90Layout kLayout = mla_sm90_layout(576);
  static_assert(kLayout.p_full - kLayout.sums == 2 * kMlaHalves * kWarpgroupRows * 4);
  EXPECT_LE(kLayout.bytes, 232448);
}

}  // namespace
}  // namespace attune
