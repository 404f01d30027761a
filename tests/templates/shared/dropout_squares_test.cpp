// SPDX-License-Identifier: Apache-2.0
// Dropout of CUDA kernels (templates/cuda/parts/dropout_squares.cuh), compiled for the
// host, where 32 threads are a warp: each element that a lane holds has the decision that
// shared/dropout.h gives its row and key.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#define __device__
#define __forceinline__ inline

namespace {

struct Index {
  unsigned x;
};
thread_local Index threadIdx{0};
constexpr Index blockIdx{0}, blockDim{32};

std::barrier<> all_lanes(32);
std::array<unsigned, 32> exchanged;

unsigned exchange(unsigned value, unsigned from) {
  exchanged[threadIdx.x % 32] = value;
  all_lanes.arrive_and_wait();
  const unsigned received = exchanged[from];
  all_lanes.arrive_and_wait();
  return received;
}
unsigned __shfl_xor_sync(unsigned, unsigned value, unsigned mask) {
  return exchange(value, (threadIdx.x % 32) ^ mask);
}
}  // namespace

#include "cuda/parts/dropout_squares.cuh"

namespace attune {
namespace {

// Seed and offset of two addends, which need more than 32 bits.
DropoutArgs args_of(unsigned threshold) {
  static const unsigned long long kAddedSeed = 77, kAddedOffset = 0xFFFFFFF0ull;
  DropoutArgs args{};
  args.seed_address = &kAddedSeed, args.offset_address = &kAddedOffset;
  args.seed = 0x123456789ABCDEFull + threshold, args.offset = 5ull << 32;
  args.head0 = threshold, args.row0 = threshold % 5 * 16;
  args.keep(threshold);
  return args;
}

// How many of a warp's decisions `lane(args, number)` counts as wrong.
int wrong_in_warp(const std::function<int(int lane)>& wrong_in_lane) {
  std::array<int, 32> wrong{};
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 32; ++lane)
    lanes.emplace_back([&, lane] {
      threadIdx.x = static_cast<unsigned>(lane);
      host_thread = lane;
      wrong[static_cast<size_t>(lane)] = wrong_in_lane(lane);
    });
  for (std::thread& lane : lanes) lane.join();
  int sum = 0;
  for (const int of_lane : wrong) sum += of_lane;
  return sum;
}

struct FirstSquare {
  unsigned head, rows16, cell;
};

// Elements of an accumulator have rows `half` and, in each block of 8 columns, columns 2 (lane % 4)
// and the next.
template <int kSquares, bool kKeysStay>
int wrong_places(const DropoutArgs& args, const FirstSquare& first) {
  return wrong_in_warp([&](int lane) {
    using Squares = DropoutSquares<kSquares, kKeysStay>;
    const DropoutSource of_head(args, first.head);
    Squares squares;
    squares.make(Squares::staying(of_head, kKeysStay ? first.cell : first.rows16),
                 kKeysStay ? first.rows16 : first.cell);
    int wrong = 0;
    for (int block8 = 0; block8 < 2 * kSquares; ++block8)
      for (int half = 0; half < 2; ++half) {
        const unsigned kept = squares.keep(0xFFFFFFFFu, block8, half);
        for (int i = 0; i < 2; ++i) {
          const int stays = lane / 4 + 8 * half, streams = 8 * block8 + lane % 4 * 2 + i;
          const int row = static_cast<int>(first.rows16) * 16 + (kKeysStay ? streams : stays);
          const int key = static_cast<int>(first.cell) * 16 + (kKeysStay ? stays : streams);
          const bool keeps = dropout_factor(args, first.head, row, key) > 0;
          wrong += (kept >> 16 * i & 0xFFFF) != (keeps ? 0xFFFFu : 0u);
          wrong += squares.keeps(block8, half, i) != keeps;
        }
      }
    return wrong;
  });
}

template <bool kKeysStay>
void expect_none_wrong(const DropoutArgs& args) {
  EXPECT_EQ((wrong_places<1, kKeysStay>(args, {3, 1, 5})), 0);
  EXPECT_EQ((wrong_places<2, kKeysStay>(args, {4, 1, 5})), 0);
  EXPECT_EQ((wrong_places<3, kKeysStay>(args, {3, 7, 7})), 0);
  EXPECT_EQ((wrong_places<4, kKeysStay>(args, {0, 0, 0})), 0);
  EXPECT_EQ((wrong_places<5, kKeysStay>(args, {3, 14, 14})), 0);
  EXPECT_EQ((wrong_places<6, kKeysStay>(args, {3, 2, 14})), 0);
  EXPECT_EQ((wrong_places<7, kKeysStay>(args, {3, 2, 15})), 0);
  EXPECT_EQ((wrong_places<8, kKeysStay>(args, {9, 12, 12})), 0);
  EXPECT_EQ((wrong_places<11, kKeysStay>(args, {3, 1000, 1000})), 0);
}

class DropoutSquaresOf : public ::testing::TestWithParam<unsigned> {};

TEST_P(DropoutSquaresOf, RowsAreThoseOfTheirPlaces) {
  expect_none_wrong<false>(args_of(GetParam()));
}
TEST_P(DropoutSquaresOf, KeysAreThoseOfTheirPlaces) {
  expect_none_wrong<true>(args_of(GetParam()));
}

// Thresholds of 256: the least and the most that problems give, and both sides of a sign.
INSTANTIATE_TEST_SUITE_P(Thresholds, DropoutSquaresOf,
                         ::testing::Values(1u, 26u, 127u, 128u, 129u, 230u, 255u, 256u),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

}  // namespace
}  // namespace attune
