// SPDX-License-Identifier: Apache-2.0
// One thread makes each kernel, whatever the number of threads; failures are not remembered.
#include "runtime/engine/kernel_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace attune {
namespace {

class Nothing final : public LoadedKernel {
 public:
  const ImageInfo& info() const override { return info_; }
  void launch(const LaunchPlan&, KernelArguments&, StreamHandle) const override {}

 private:
  ImageInfo info_;
};

TEST(KernelCache, SixteenThreadsMakeOneKernel) {
  KernelCache cache;
  std::atomic<int> made{0};
  std::vector<const LoadedKernel*> got(16);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] {
      got[i] = cache
                   .get("key",
                        [&] {
                          ++made;
                          std::this_thread::sleep_for(std::chrono::milliseconds(20));
                          return CachedKernel{std::make_shared<Nothing>(), "compiler"};
                        })
                   .kernel.get();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  for (const LoadedKernel* kernel : got) EXPECT_EQ(kernel, got[0]);
}

TEST(KernelCache, WaitingThreadsShareAFailureThatIsThenForgotten) {
  KernelCache cache;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      try {
        cache.get("key", []() -> CachedKernel {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          throw std::runtime_error("no");
        });
      } catch (const std::runtime_error&) {
        ++failures;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 8);
  EXPECT_TRUE(cache.get("key",
                        [] {
                          return CachedKernel{std::make_shared<Nothing>(), "again"};
                        })
                  .kernel);
}

}  // namespace
}  // namespace attune
