// SPDX-License-Identifier: Apache-2.0
// What prefill_sm90_fp8 flushes of O (templates/cuda/attention/fp8_flush.cuh), compiled for the
// host with an array for shared memory: every thread gets back its own sums, under the factors by
// which O was rescaled in between.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#define __device__
#define __forceinline__ inline

#include "cuda/attention/fp8_flush.cuh"

namespace attune {
namespace {

constexpr int kCount = 20;
constexpr int kThreads = 8;
using Flushed = FlushedOutput<kCount, kThreads>;

TEST(FlushedOutput, GivesBackWhatWasTakenAsIfNothingHadHappened) {
  shared_memory.assign(Flushed::kBytes, 0xff);  // NaN where nothing was stored
  std::mt19937_64 random(3);
  std::vector<Flushed> flushed;
  std::vector<std::vector<float>> plain(kThreads, std::vector<float>(kCount));
  float o[kThreads][kCount];
  for (int thread = 0; thread < kThreads; ++thread) flushed.emplace_back(0u, thread);
  for (int tile = 0; tile < 2; ++tile) {
    for (int thread = 0; thread < kThreads; ++thread) {
      flushed[thread].clear();
      for (int i = 0; i < kCount; ++i) plain[thread][i] = o[thread][i] = 0;
    }
    for (int step = 0; step < 40; ++step)
      for (int thread = 0; thread < kThreads; ++thread) {
        if (random() % 4 == 0) flushed[thread].take(o[thread]);
        if (random() % 3 == 0) {  // powers of two: exact in any order
          const float factor[2] = {0.5F, 0.25F};
          flushed[thread].rescale(factor);
          for (int i = 0; i < kCount; ++i) o[thread][i] *= factor[i / 2 % 2];
          for (int i = 0; i < kCount; ++i) plain[thread][i] *= factor[i / 2 % 2];
        }
        for (int i = 0; i < kCount; ++i) {
          const auto more = static_cast<float>(random() % 64);
          o[thread][i] += more;
          plain[thread][i] += more;
        }
      }
    for (int thread = 0; thread < kThreads; ++thread) {
      flushed[thread].give_back(o[thread]);
      for (int i = 0; i < kCount; ++i)
        EXPECT_NEAR(o[thread][i], plain[thread][i], 1e-4F * plain[thread][i] + 1e-4F)
            << "tile " << tile << " thread " << thread << " accumulator " << i;
    }
  }
}

TEST(FlushedOutput, NothingTakenGivesNothingBack) {
  shared_memory.assign(Flushed::kBytes, 0xff);
  Flushed flushed(0, 3);
  flushed.clear();
  float o[kCount] = {1, 2, 3};
  flushed.give_back(o);
  EXPECT_EQ(o[0], 1);
  EXPECT_EQ(o[19], 0);
}

}  // namespace
}  // namespace attune
