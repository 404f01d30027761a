// SPDX-License-Identifier: Apache-2.0
// Measures in a child process that crashes, hangs and lies (misbehaving_worker.cpp). Each fault
// must affect one kernel only.
#include "tuner/measure/isolated_backend.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "tests/support/wall_clock.hpp"
#include "tuner/measure/child_process.hpp"
#include "tuner/measure/measure.hpp"

namespace attune {
namespace {

constexpr MeasureLimits kShort{.open_s = 60, .prepare_s = 30, .sample_s = 30, .least_s = 2};

MeasureTask task(int64_t seqlen = 128) {
  Problem problem = parse_problem(
      "dtype=bf16,head_dim=128,heads=32/8,seqlen=0,mask=causal_bottom_right,window=64:-");
  problem.seqlen_q = problem.seqlen_kv = seqlen;
  MeasureTask task{problem, 7, KernelRequest{"reference", Config(), {}}};
  task.reference->image.bytes =
      std::string("\0ELF\n{}\n", 8);  // bytes that must not be parsed as a line
  return task;
}

KernelRequest kernel(int fate, int us = 100) {
  KernelRequest request{"prefill", Config({{"fate", fate}, {"us", us}}), {}};
  request.image.bytes = std::string(100000, static_cast<char>(fate));
  return request;
}

class IsolatedBackendTest : public ::testing::Test {
 protected:
  IsolatedBackend backend_{{ATTUNE_MISBEHAVING_WORKER}, kShort};
};

TEST_F(IsolatedBackendTest, ForwardsTheWorkersMeasurements) {
  backend_.open(task());
  const Prepared prepared = backend_.prepare(4, kernel(0, 250));
  ASSERT_FALSE(prepared.fault);
  EXPECT_EQ(prepared.estimate_us, 250);
  EXPECT_EQ(prepared.info.registers, 96);
  backend_.prepare(9, kernel(0, 300));
  const Round round = backend_.round({9, 4}, kShortSampleUs);
  ASSERT_EQ(round.samples.size(), 2U);
  EXPECT_EQ(round.samples[0].id, 9);
  EXPECT_EQ(round.samples[0].us, 300);
  EXPECT_EQ(round.samples[1].us, 250);
  EXPECT_EQ(round.sm_clock_mhz, 1980);
  EXPECT_EQ(backend_.num_children(), 1);
}

// A reloaded kernel is not checked, so a fault that the check would find does not show.
TEST_F(IsolatedBackendTest, CheckedKernelsAreLoadedAgainWithoutACheck) {
  backend_.open(task());
  EXPECT_FALSE(backend_.reload(2, kernel(1, 300)).fault);
  EXPECT_EQ(backend_.round({2}, kSustainedSampleUs).samples.at(0).us, 300);
  EXPECT_EQ(backend_.num_children(), 1);
}

struct Mishap {
  int fate;
  TrialStatus status;
  const char* reason;  // part of it
};

class MishapTest : public ::testing::TestWithParam<Mishap> {};

TEST_P(MishapTest, WhileCheckedCostsTheKernelAlone) {
  IsolatedBackend backend({ATTUNE_MISBEHAVING_WORKER}, kShort);
  backend.open(task());
  ASSERT_FALSE(backend.prepare(1, kernel(0, 100)).fault);
  const Prepared bad = backend.prepare(2, kernel(GetParam().fate));
  ASSERT_TRUE(bad.fault);
  EXPECT_EQ(bad.fault->status, GetParam().status);
  EXPECT_NE(bad.fault->reason.find(GetParam().reason), std::string::npos) << bad.fault->reason;
  ASSERT_FALSE(backend.prepare(3, kernel(0, 120)).fault);
  const Round round = backend.round({1, 3}, kShortSampleUs);  // the first kernel is loaded again
  ASSERT_EQ(round.samples.size(), 2U);
  EXPECT_EQ(round.samples[0].us, 100);
  EXPECT_EQ(round.samples[1].us, 120);
}

INSTANTIATE_TEST_SUITE_P(All, MishapTest,
                         ::testing::Values(Mishap{1, TrialStatus::kLaunchFailed, "signal 6"},
                                           Mishap{2, TrialStatus::kTimedOut, "no answer"},
                                           Mishap{3, TrialStatus::kWrongResult, "row 3 is nan"},
                                           Mishap{6, TrialStatus::kLaunchFailed, "status 3"},
                                           Mishap{8, TrialStatus::kLaunchFailed, "device lost"}));

class LateMishapTest : public ::testing::TestWithParam<Mishap> {};

TEST_P(LateMishapTest, WhileTimedCostsTheKernelAlone) {
  IsolatedBackend backend({ATTUNE_MISBEHAVING_WORKER}, kShort);
  backend.open(task());
  ASSERT_FALSE(backend.prepare(1, kernel(0, 100)).fault);
  ASSERT_FALSE(backend.prepare(2, kernel(GetParam().fate, 50)).fault);
  ASSERT_FALSE(backend.prepare(3, kernel(0, 120)).fault);
  Race race(backend, {.seed = 3});
  EXPECT_EQ(race.run({1, 2, 3}, 9), 9);
  ASSERT_EQ(race.faults().count(2), 1U);
  EXPECT_EQ(race.faults().at(2).status, GetParam().status);
  EXPECT_EQ(race.faults().size(), 1U);
  EXPECT_EQ(race.num_samples(1), 9U);
  EXPECT_EQ(race.num_samples(3), 9U);
  EXPECT_EQ(race.survivors({1, 2, 3}), std::vector<int>{1});
  EXPECT_EQ(backend.num_children(), 2);
}

INSTANTIATE_TEST_SUITE_P(All, LateMishapTest,
                         ::testing::Values(Mishap{4, TrialStatus::kLaunchFailed, ""},
                                           Mishap{5, TrialStatus::kTimedOut, ""}));

TEST_F(IsolatedBackendTest, PrintingKernelsDoNotDisturbTheProtocol) {
  backend_.open(task());
  EXPECT_FALSE(backend_.prepare(1, kernel(7)).fault);
  EXPECT_EQ(backend_.round({1}, kShortSampleUs).samples.at(0).us, 100);
}

TEST_F(IsolatedBackendTest, AProblemThatDoesNotFitIsAnErrorAndTheNextOneWorks) {
  try {
    backend_.open(task(666));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_STREQ(error.what(), "no memory for this problem");
  }
  backend_.open(task());
  EXPECT_FALSE(backend_.prepare(1, kernel(0)).fault);
}

TEST_F(IsolatedBackendTest, RestartGivesAFreshProcess) {
  backend_.open(task());
  backend_.restart();
  backend_.open(task());
  EXPECT_EQ(backend_.num_children(), 2);
}

TEST_F(IsolatedBackendTest, AWorkerKilledAtOpenIsReplacedOnce) {
  const std::string once = ::testing::TempDir() + "attune_once_" + std::to_string(::getpid());
  ::setenv("ATTUNE_TEST_ONCE", once.c_str(), 1);
  backend_.open(task(668));
  EXPECT_EQ(backend_.num_children(), 2);
  EXPECT_FALSE(backend_.prepare(1, kernel(0)).fault);
  ::unlink(once.c_str());
  try {
    backend_.open(task(667));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("signal 9"), std::string::npos) << error.what();
  }
  EXPECT_EQ(backend_.num_children(), 3) << "the second one opened it first, a third one was tried";
}

// A place where a worker hangs, so that the caller's patience must end the wait.
struct Hang {
  const char* name;
  int64_t seqlen;
  int fate;
};

class HangTest : public ::testing::TestWithParam<Hang> {
 protected:
  // The limits are longer than any test: only the caller's patience can end the wait.
  IsolatedBackend backend_{{ATTUNE_MISBEHAVING_WORKER},
                           {.open_s = 600, .prepare_s = 600, .sample_s = 600, .least_s = 600}};

  void measure_until_it_hangs() {
    backend_.open(task(GetParam().seqlen));
    backend_.prepare(1, kernel(GetParam().fate));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    KernelRequest big = kernel(0);
    big.image.bytes = std::string(8 << 20, 'x');  // more than a socket holds
    if (GetParam().fate == 9) backend_.prepare(2, big);
    for (int i = 0; i < 9; ++i) backend_.round({1}, kShortSampleUs);
  }
};

TEST_P(HangTest, EndsAtTheCallersTimeLimit) {
  const auto began = std::chrono::steady_clock::now();
  const auto passed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  backend_.set_patience([&] { return std::max(0.0, 1.0 - passed_s()) + 0.5; });
  EXPECT_THROW(measure_until_it_hangs(), WaitEnded);
  EXPECT_GE(passed_s(), 0.9);
  EXPECT_LE(passed_s(), 10) << "the machine may be busy";
  backend_.set_patience({});
  backend_.open(task());
  EXPECT_FALSE(backend_.prepare(1, kernel(0)).fault) << "the next worker works";
}

TEST_P(HangTest, EndsAtOnceWhenTheCallerStops) {
  const auto began = std::chrono::steady_clock::now();
  const auto is_stopped = [&] {
    return std::chrono::steady_clock::now() - began > std::chrono::milliseconds(700);
  };
  backend_.set_patience([&] { return is_stopped() ? 0.0 : INFINITY; });
  EXPECT_THROW(measure_until_it_hangs(), WaitEnded);
  ATTUNE_EXPECT_WITHIN(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

INSTANTIATE_TEST_SUITE_P(All, HangTest,
                         ::testing::Values(Hang{"open", 669, 0}, Hang{"prepare", 128, 2},
                                           Hang{"send", 128, 9}, Hang{"sample", 128, 5}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(IsolatedBackend, AWorkerThatCannotStartIsSaid) {
  IsolatedBackend backend({"/nonexistent/attune"}, kShort);
  EXPECT_THROW(backend.open(task()), Error);
}

TEST(IsolatedBackend, AWorkerThatEndsAtOnceIsSaid) {
  IsolatedBackend backend({"/bin/false"}, kShort);
  try {
    backend.open(task());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("exited with status 1"), std::string::npos)
        << error.what();
  }
}

TEST(ChildProcess, IsKilledWithItsOwner) {
  pid_t pid = 0;
  {
    ChildProcess child({"/bin/sleep", "600"});
    pid = child.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcess, EndsWhereChildrenAreNotWaitedFor) {
  const auto former = signal(SIGCHLD, SIG_IGN);
  ChildProcess child({"/bin/sleep", "600"});
  const pid_t pid = child.pid();
  EXPECT_EQ(child.end(), "ended, with unknown status");
  EXPECT_EQ(kill(pid, 0), -1);
  signal(SIGCHLD, former);
}

// The descriptors left suffice for the socket pair, but not for its copies above stderr.
TEST(ChildProcess, NoDescriptorLeftForItIsSaid) {
  rlimit former{};
  getrlimit(RLIMIT_NOFILE, &former);
  const rlimit few{32, former.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<FileDescriptor> taken;
  for (int file = 0; file >= 0;) {
    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file >= 0) taken.emplace_back(file);
  }
  taken.pop_back();
  for (int left = 2; left <= 3; ++left) {
    taken.pop_back();
    try {
      ChildProcess child({"/bin/true"});
      ADD_FAILURE() << left << " descriptors were left";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "cannot make a socket pair: Too many open files");
    }
  }
  setrlimit(RLIMIT_NOFILE, &former);
}

}  // namespace
}  // namespace attune
