// SPDX-License-Identifier: Apache-2.0
// The thread pool: every part runs once, errors reach the caller, fewer threads suffice.
#include "runtime/cpu/thread_pool.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/thread_limit.hpp"

namespace attune {
namespace {

TEST(ThreadPool, EveryThreadRunsOnceARound) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    std::vector<int> counts(static_cast<size_t>(threads), 0);
    for (int round = 1; round <= 200; ++round) {
      pool.run([&](int thread, int num_threads) {
        EXPECT_EQ(num_threads, threads);
        ++counts[static_cast<size_t>(thread)];
      });
      for (const int count : counts) ASSERT_EQ(count, round);
    }
  }
}

// Each thread waits for all others inside the work, which ends only if all run at the same time.
TEST(ThreadPool, ThreadsRunAtTheSameTime) {
  ThreadPool pool(4);
  std::atomic<int> arrived{0};
  pool.run([&](int, int num_threads) {
    ++arrived;
    while (arrived < num_threads) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 4);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3);
  std::atomic<int> runs{0};
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long past the spinning
    pool.run([&](int, int) { ++runs; });
  }
  EXPECT_EQ(runs, 9);
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int> inside{0}, runs{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        pool.run([&](int thread, int) {
          if (thread == 0) {
            EXPECT_EQ(inside++, 0);
          }
          ++runs;
          if (thread == 0) --inside;
        });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 4 * 50 * 2);
}

TEST(ThreadPool, WorksWithTheThreadsThatTheSystemGrants) {
  for (const int granted : {0, 1, 3}) {
    const testing::ThreadLimit limit(granted);
    ThreadPool pool(8);
    EXPECT_EQ(pool.num_threads(), granted + 1);
    EXPECT_EQ(limit.refused(), 1);
    std::vector<int> runs(8, 0);
    for (int round = 0; round < 20; ++round)
      pool.run([&](int thread, int num_threads) {
        EXPECT_EQ(num_threads, granted + 1);
        ++runs[static_cast<size_t>(thread)];
      });
    for (int thread = 0; thread < 8; ++thread)
      EXPECT_EQ(runs[static_cast<size_t>(thread)], thread <= granted ? 20 : 0);
  }
}

TEST(ThreadPool, CountsBelowOneMeanOne) {
  ThreadPool pool(0);
  EXPECT_EQ(pool.num_threads(), 1);
  int runs = 0;
  pool.run([&](int, int) { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace attune
