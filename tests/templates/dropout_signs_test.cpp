// SPDX-License-Identifier: Apache-2.0
// What CUDA kernels drop (templates/cuda/attention/dropout_of_rows.cuh and dropout_of_keys.cuh), compiled for the host, where 32 threads
// are a warp: each element that a lane holds has the decision that shared/dropout.h gives its row and key.
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
unsigned __shfl_sync(unsigned, unsigned value, int lane, int width = 32) {
  const unsigned here = threadIdx.x % 32, group = static_cast<unsigned>(width);
  return exchange(value, here / group * group + static_cast<unsigned>(lane) % group);
}
unsigned __shfl_xor_sync(unsigned, unsigned value, unsigned mask) {
  return exchange(value, (threadIdx.x % 32) ^ mask);
}
float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

#include "cuda/attention/dropout_of_keys.cuh"
#include "cuda/attention/dropout_of_rows.cuh"

namespace attune {
namespace {

// Numbers that carry into the upper half of the counter, and a seed of two addends.
DropoutArgs args_of(unsigned threshold) {
  static const unsigned long long kAddedSeed = 77, kAddedOffset = 0xFFFFFFF0ull;
  return {&kAddedSeed, &kAddedOffset, 0x123456789ABCDEFull + threshold,     5ull << 32,
          nullptr,     threshold,     256.F / static_cast<float>(threshold)};
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

// The second row of a thread is 8 further down, or in another head.
template <int kCells>
int wrong_rows(const DropoutArgs& args, const DropoutRows& first, unsigned first_cell) {
  return wrong_in_warp([&](int lane) {
    DropoutRows rows = first;
    for (unsigned& row : rows.row) row += static_cast<unsigned>(lane) / 4;
    DropoutOfRows<kCells> signs;
    signs.make(DropoutSource(args), rows, first_cell);
    int wrong = 0;
    for (int block8 = 0; block8 < 2 * kCells; ++block8)
      for (int half = 0; half < 2; ++half) {
        const unsigned kept = signs.keep(0xFFFFFFFFu, block8, half);
        for (int i = 0; i < 2; ++i) {
          const int key = static_cast<int>(first_cell) * 16 + 8 * block8 + lane % 4 * 2 + i;
          const bool keeps =
              dropout_factor(args, rows.head[half], static_cast<int>(rows.row[half]), key) > 0;
          wrong += (kept >> 16 * i & 0xFFFF) != (keeps ? 0xFFFFu : 0u);
          wrong += signs.keeps(block8, half, i) != keeps;
          wrong += signs.twice_kept(block8, half, i) != (keeps ? 2.F : 0.F);
        }
      }
    return wrong;
  });
}

template <int kRows>
int wrong_keys(const DropoutArgs& args, unsigned head, unsigned first_row, unsigned cell) {
  return wrong_in_warp([&](int lane) {
    DropoutOfKeys<kRows> signs;
    signs.make(DropoutSource(args), head, first_row, cell);
    int wrong = 0;
    for (int block8 = 0; block8 < kRows / 8; ++block8) {
      const unsigned block = signs.of_block(block8, lane);
      for (int i = 0; i < 4; ++i) {
        const int row = static_cast<int>(first_row) + 8 * block8 + lane % 4 * 2 + i % 2;
        const int key = static_cast<int>(cell) * 16 + lane / 4 + i / 2 * 8;
        wrong += (signs.sign(block, i) >> 31 != 0) == (dropout_factor(args, head, row, key) > 0);
      }
    }
    return wrong;
  });
}

class DropoutSignsOf : public ::testing::TestWithParam<unsigned> {};

TEST_P(DropoutSignsOf, RowsAreThoseOfTheirPlaces) {
  const DropoutArgs args = args_of(GetParam());
  const DropoutRows below{{3, 3}, {16, 24}}, other_head{{3, 4}, {16, 16}};
  EXPECT_EQ(wrong_rows<1>(args, below, 5), 0);
  EXPECT_EQ(wrong_rows<2>(args, other_head, 5), 0);
  EXPECT_EQ(wrong_rows<3>(args, below, 7), 0);
  EXPECT_EQ(wrong_rows<4>(args, other_head, 0), 0);
  EXPECT_EQ(wrong_rows<5>(args, other_head, 14), 0);  // the carry stands between these
  EXPECT_EQ(wrong_rows<6>(args, below, 14), 0);
  EXPECT_EQ(wrong_rows<8>(args, below, 12), 0);
  EXPECT_EQ(wrong_rows<11>(args, below, 1000), 0);
}

TEST_P(DropoutSignsOf, KeysAreThoseOfTheirPlaces) {
  const DropoutArgs args = args_of(GetParam());
  EXPECT_EQ(wrong_keys<16>(args, 9, 32, 3), 0);
  EXPECT_EQ(wrong_keys<32>(args, 9, 32, 3), 0);
  EXPECT_EQ(wrong_keys<48>(args, 9, 48, 0), 0);
  EXPECT_EQ(wrong_keys<64>(args, 0, 64, 17), 0);
  EXPECT_EQ(wrong_keys<80>(args, 9, 80, 3), 0);
  EXPECT_EQ(wrong_keys<96>(args, 9, 96, 15), 0);
  EXPECT_EQ(wrong_keys<112>(args, 9, 112, 3), 0);
  EXPECT_EQ(wrong_keys<128>(args, 9, 128, 100), 0);
}

// Of 256: the least and the most that problems give, and both sides of a sign.
INSTANTIATE_TEST_SUITE_P(Thresholds, DropoutSignsOf,
                         ::testing::Values(1u, 26u, 127u, 128u, 129u, 230u, 255u, 256u),
                         [](const auto& tested) { return "Of" + std::to_string(tested.param); });

}  // namespace
}  // namespace attune
