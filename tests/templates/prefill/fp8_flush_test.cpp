// SPDX-License-Identifier: Apache-2.0
// Sums of O that prefill_sm90_fp8 flushes (templates/cuda/prefill_sm90_fp8/fp8_flush.cuh), compiled
// for the host with an array for shared memory. Every thread must get back its own sums, multiplied
// by the factors that rescaled O meanwhile, and must only touch its own warp's rows of the staging.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#define __device__
#define __forceinline__ inline

namespace attune {
using std::max;
}  // namespace attune

#include "cuda/prefill_sm90_fp8/fp8_flush.cuh"

namespace attune {
namespace {

constexpr int kThreads = 64;  // two warps
constexpr int kPanelBytes = 8192;
constexpr int kGainLog2 = 6;
constexpr float kLargest = 448;  // of e4m3

template <int kCount>
using Flushed = FlushedOutput<kCount, kPanelBytes, kGainLog2>;

template <int kCount>
struct Threads {
  std::vector<Flushed<kCount>> flushed{kThreads};
  std::vector<std::vector<float>> plain;
  float o[kThreads][kCount];

  Threads() : plain(kThreads, std::vector<float>(kCount)) {
    shared_memory.assign(static_cast<size_t>((kCount + 31) / 32 * kPanelBytes), 0xff);  // NaN
  }
  void clear() {
    const float odd[2] = {NAN, INFINITY};
    for (int thread = 0; thread < kThreads; ++thread) {
      flushed[thread].rescale(odd);  // of the tile before
      flushed[thread].clear();
      for (int i = 0; i < kCount; ++i) plain[thread][i] = o[thread][i] = 0;
    }
  }
};

template <int kCount>
void check_sums() {
  Threads<kCount> threads;
  std::mt19937_64 random(3);
  for (int tile = 0; tile < 2; ++tile) {
    threads.clear();
    float sum[2] = {0, 0};
    for (int step = 0; step < 40; ++step) {
      const bool taken = random() % 4 == 0, rescaled = random() % 3 == 0;
      const float factor[2] = {0.5F, 0.3F};
      for (int thread = 0; thread < kThreads; ++thread) {
        auto& o = threads.o[thread];
        auto& plain = threads.plain[thread];
        if (rescaled) {
          threads.flushed[thread].rescale(factor);
          for (int i = 0; i < kCount; ++i) o[i] *= factor[i / 2 % 2];
          for (int i = 0; i < kCount; ++i) plain[i] *= factor[i / 2 % 2];
        }
        const float now[2] = {rescaled ? sum[0] * factor[0] : sum[0],
                              rescaled ? sum[1] * factor[1] : sum[1]};
        if (taken) {
          threads.flushed[thread].take(Flushed<kCount>::offset_of_thread(thread), now, o);
          std::fill_n(o, kCount, 0.F);  // the next product overwrites
        }
        for (int i = 0; i < kCount; ++i) {
          const auto more = kLargest * static_cast<float>(random() % 64) / 32;
          o[i] += more;
          plain[i] += more;
        }
      }
      for (int half = 0; half < 2; ++half)
        sum[half] = sum[half] * (rescaled ? factor[half] : 1) + 2;
    }
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.flushed[thread].give_back(Flushed<kCount>::offset_of_thread(thread),
                                        threads.o[thread]);
      for (int i = 0; i < kCount; ++i)
        ASSERT_NEAR(threads.o[thread][i], threads.plain[thread][i],
                    2e-3F * threads.plain[thread][i])
            << "tile " << tile << " thread " << thread << " accumulator " << i;
    }
  }
}

TEST(FlushedOutput, ReturnsFlushedSumsUnchanged) {
  check_sums<20>();
  check_sums<64>();
  check_sums<100>();
}

// Sums at the end of a row of any size, and the largest that P rounded up can make of it.
TEST(FlushedOutput, HoldsTheLargestAndSmallSums) {
  Threads<4> threads;
  for (const float sum : {0x1p6F, 100.0F, 0x1.fffffep6F, 3e4F, 1e9F, 1e12F})
    for (const float part : {2 * kLargest, -kLargest, 1.0F, 0x1p-9F}) {
      threads.clear();
      auto& o = threads.o[0];
      const float both[2] = {sum, 64.0F};
      o[0] = part * sum;
      o[2] = part * 64;
      threads.flushed[0].take(Flushed<4>::offset_of_thread(0), both, o);
      std::fill_n(o, 4, 0.F);
      threads.flushed[0].give_back(Flushed<4>::offset_of_thread(0), o);
      EXPECT_NEAR(o[0], part * sum, 0x1p-11F * std::abs(part * sum)) << sum << " " << part;
      EXPECT_NEAR(o[2], part * 64, 0x1p-11F * std::abs(part * 64)) << sum << " " << part;
    }
}

TEST(FlushedOutput, EmptyRowsStayZeroAndNanIsKept) {
  Threads<4> threads;
  threads.clear();
  const float sum[2] = {0, 64};
  auto& o = threads.o[5];
  o[2] = NAN;
  threads.flushed[5].take(Flushed<4>::offset_of_thread(5), sum, o);
  std::fill_n(o, 4, 0.F);
  threads.flushed[5].give_back(Flushed<4>::offset_of_thread(5), o);
  EXPECT_EQ(o[0], 0);
  EXPECT_TRUE(std::isnan(o[2]));
}

// Sums in the workspace, by a pointer: two threads flush twice, over bytes of another tile.
TEST(FlushedOutput, WorksInTheWorkspaceAsInSharedMemory) {
  constexpr int kCount = 64;
  alignas(16) static char workspace[kCount / 32 * kPanelBytes];
  std::fill_n(workspace, sizeof(workspace), static_cast<char>(0xff));  // NaN
  const std::vector<char> before(workspace, workspace + sizeof(workspace));
  Threads<kCount> threads;
  threads.clear();
  const float sum[2] = {100, 300};
  for (const int thread : {3, 40}) {
    Flushed<kCount>& flushed = threads.flushed[thread];
    char* place = workspace + Flushed<kCount>::offset_of_thread(thread);
    for (int time = 0; time < 2; ++time) {
      for (int i = 0; i < kCount; ++i) threads.o[thread][i] = static_cast<float>(thread + i);
      flushed.take(place, sum, threads.o[thread]);
    }
    std::fill_n(threads.o[thread], kCount, 1.0F);
    flushed.give_back(static_cast<const char*>(place), threads.o[thread]);
    for (int i = 0; i < kCount; ++i)
      EXPECT_NEAR(threads.o[thread][i], 1 + 2 * (thread + i), 0.2) << thread << " " << i;
  }
  int written = 0;
  for (size_t i = 0; i < before.size(); i += 2)
    written += before[i] != workspace[i] || before[i + 1] != workspace[i + 1];
  EXPECT_EQ(written, 2 * kCount);  // fp16 of each
}

TEST(FlushedOutput, WithoutAFlushNothingIsAdded) {
  Threads<20> threads;
  threads.clear();
  EXPECT_TRUE(threads.flushed[3].empty());
  auto& o = threads.o[3];
  o[0] = 1;
  threads.flushed[3].give_back(Flushed<20>::offset_of_thread(3), o);
  EXPECT_EQ(o[0], 1);
  EXPECT_EQ(o[19], 0);
}

}  // namespace
}  // namespace attune
