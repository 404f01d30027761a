// SPDX-License-Identifier: Apache-2.0
// The CPU device over the real plugin: identity, threads, launches from many threads and after
// fork. Skips aloud without it.
#include "runtime/cpu/cpu_device.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/support/thread_limit.hpp"

namespace attune {
namespace {

class CpuDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = open_cpu_device(3);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    EngineOptions options;
    options.use_store = false;
    plan_ = Engine(device_, options).plan(problem_);
  }

  // Returns true if every output is 3. All values are 3, so scores do not matter.
  bool runs_right() const {
    const int64_t count = 2 * 70 * 4 * 32;
    float* const memory = static_cast<float*>(device_->allocate(4 * count * 4));
    for (int64_t i = 0; i < 3 * count; ++i) memory[i] = 3;
    device_->fill(memory + 3 * count, 255, 4 * count, nullptr);
    void* const workspace = device_->allocate(plan_->workspace_bytes());
    init_workspace(*plan_, workspace, plan_->workspace_bytes(), nullptr);
    const Operands operands = contiguous_operands(problem_, memory, memory + count,
                                                  memory + 2 * count, memory + 3 * count, nullptr);
    bool right = true;
    for (int repeat = 0; repeat < 3; ++repeat) {
      run(*plan_, operands, workspace, plan_->workspace_bytes(), nullptr);
      for (int64_t i = 3 * count; i < 4 * count; ++i)
        right = right && std::abs(memory[i] - 3) < 1e-5f;
    }
    device_->release(memory), device_->release(workspace);
    return right;
  }

  const Problem problem_ = parse_problem("dtype=fp32,head_dim=32,heads=4,batch=2,seqlen=70");
  std::shared_ptr<const Device> device_;
  std::shared_ptr<const Plan> plan_;
};

TEST_F(CpuDevice, IdentityNamesCpuAndThreads) {
  EXPECT_EQ(device_->identity().arch, device_->archs().front().name());
  EXPECT_EQ(device_->identity().sm_count, 3);
  EXPECT_EQ(device_->facts().sm_count, 3);
  EXPECT_FALSE(device_->identity().name.empty());
  EXPECT_EQ(open_device("cpu:2")->facts().sm_count, 2);
}

TEST_F(CpuDevice, RunsFromManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 6; ++i) threads.emplace_back([&] { right += runs_right(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 6);
}

TEST_F(CpuDevice, RunsInAChildAfterFork) {
  ASSERT_TRUE(runs_right());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a hang ends the child by a signal
    const bool right = runs_right();
    plan_.reset(), device_.reset();  // must not wait for threads that the child does not have
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "the child hung or crashed, signal "
                                 << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CpuDevice, RunsOnTheThreadsThatTheSystemGrants) {
  EngineOptions options;
  options.use_store = false;
  {
    const testing::ThreadLimit limit(1);
    device_ = open_cpu_device(8);
  }
  EXPECT_EQ(device_->identity().sm_count, 2) << "times belong to the number of threads that ran";
  EXPECT_EQ(device_->facts().sm_count, 2);
  plan_ = Engine(device_, options).plan(problem_);
  EXPECT_TRUE(runs_right());
}

TEST_F(CpuDevice, MoreThreadsThanAnyMachineHasAreRefused) {
  EXPECT_EQ(open_device("cpu:1024")->facts().sm_count, 1024);
  for (const char* target : {"cpu:1025", "cpu:40000"}) {
    try {
      open_device(target);
      ADD_FAILURE() << target << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("1 to 1024"), std::string::npos) << error.what();
    }
  }
}

TEST_F(CpuDevice, CubinsAreRefused) {
  KernelImage image;
  image.format = ImageFormat::kCubin;
  EXPECT_THROW(device_->load(image, spec_of(problem_), {}), Error);
}

}  // namespace
}  // namespace attune
