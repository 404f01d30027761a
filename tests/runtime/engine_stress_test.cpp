// SPDX-License-Identifier: Apache-2.0
// Sixteen threads plan equal and different problems at once: each kernel is compiled and loaded
// once.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "runtime/engine/engine.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {
namespace {

constexpr int kThreads = 16, kProblems = 12, kRounds = 40;

Problem problem(int number) {
  Problem p = parse_problem("dtype=bf16,head_dim=64,heads=8,batch=1,seqlen=1024");
  p.head_dim_qk = p.head_dim_v = 64 + 8 * (number % 4);  // four kernels
  p.seqlen_q = p.seqlen_kv = 1000 + number;              // twelve plans
  return p;
}

TEST(EngineStress, SixteenThreadsCompileEachKernelOnce) {
  testing::TemporaryFolder folder;
  auto device = std::make_shared<testing::FakeDevice>();
  device->compiler_.delay = std::chrono::milliseconds(10);
  EngineOptions options;
  options.user_store = folder / "store.db";
  Engine engine(device, options);

  std::vector<std::set<const Plan*>> seen(kThreads);
  std::vector<std::shared_ptr<const Plan>> keep[kThreads];
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round)
        for (int n = 0; n < kProblems; ++n) {
          keep[t].push_back(engine.plan(problem((n + t) % kProblems)));
          seen[static_cast<size_t>(t)].insert(keep[t].back().get());
        }
    });
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(device->compiler_.most_of_one(), 1);
  EXPECT_EQ(device->seen->loads, device->compiler_.total());
  for (const std::set<const Plan*>& plans : seen) {
    EXPECT_EQ(plans.size(), kProblems);
    EXPECT_EQ(plans, seen[0]) << "all threads must share the plans";
  }
}

TEST(EngineStress, ReloadWhileOtherThreadsPlan) {
  testing::TemporaryFolder folder;
  auto device = std::make_shared<testing::FakeDevice>();
  EngineOptions options;
  options.user_store = folder / "store.db";
  Engine engine(device, options);
  std::atomic<bool> stop{false};
  std::atomic<int> plans{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int n = t; !stop; ++n, ++plans) ASSERT_TRUE(engine.plan(problem(n % kProblems))->kernel);
    });
  while (plans < 2000) engine.reload();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device->compiler_.most_of_one(), 1)
      << "kernels stay loaded when winners are read again";
}

}  // namespace
}  // namespace attune
