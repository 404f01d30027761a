// SPDX-License-Identifier: Apache-2.0
// Capture files: each problem once, whole lines, and one warning when writing fails.
#include "runtime/engine/capture.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>

#include "generator/core/system/log.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {
namespace {

Problem problem(int64_t seqlen) {
  Problem p = parse_problem("dtype=bf16,head_dim=64,heads=8,seqlen=0");
  p.seqlen_q = p.seqlen_kv = seqlen;
  return p;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Capture, AFullFileIsLoggedOnce) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "capture.jsonl";
  Capture capture(file);
  capture.note(problem(1));
  capture.note(problem(1));
  const std::string first = text_of(file);
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 1);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit room_for_half{first.size() * 3 / 2, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &room_for_half);
  const WarningCollector warnings;
  for (int64_t seqlen = 2; seqlen < 5; ++seqlen) capture.note(problem(seqlen));
  setrlimit(RLIMIT_FSIZE, &unlimited);
  ASSERT_EQ(warnings.texts().size(), 1U);
  EXPECT_THAT(warnings.texts()[0], ::testing::HasSubstr("cannot be written: File too large"));
}

// Opening a FIFO would wait for a reader while holding the lock that each plan look-up takes.
TEST(Capture, AFifoIsRefusedAndDoesNotHang) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  alarm(60);
  Capture capture(folder / "fifo");
  const WarningCollector warnings;
  capture.note(problem(1));
  alarm(0);
  ASSERT_EQ(warnings.texts().size(), 1U);
  EXPECT_THAT(warnings.texts()[0],
              ::testing::HasSubstr("cannot be written: it is a FIFO, not a regular file"));
}

TEST(Capture, CallsAreAddedUp) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "capture.jsonl";
  std::shared_ptr<CallCounts> counts;
  {
    Capture capture(file);
    capture.note(problem(1));
    counts = capture.counts_of(problem(1), Rung::kExact);
    EXPECT_EQ(capture.counts_of(problem(1), Rung::kExact), counts);
    counts->calls += 5;
    capture.write_counts();
    capture.write_counts();  // nothing new
    for (int i = 0; i < 5; ++i) count_call(counts.get(), i > 1);
  }
  counts->calls += 1;  // by a plan that outlives its engine
  EXPECT_EQ(text_of(file), "{\"problem\":\"" + to_text(problem(1)) + "\"}\n" + "{\"problem\":\"" +
                               to_text(problem(1)) +
                               "\",\"calls\":5,\"recorded\":0,\"rung\":\"exact\"}\n" +
                               "{\"problem\":\"" + to_text(problem(1)) +
                               "\",\"calls\":2,\"recorded\":3,\"rung\":\"exact\"}\n");
  EXPECT_EQ(Capture(std::filesystem::path()).counts_of(problem(1), Rung::kExact), nullptr);
}

// A kernel that is tuned while the program runs has counts of its own.
TEST(Capture, CallsOfEachRungAreCountedApart) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "capture.jsonl";
  Capture capture(file);
  capture.counts_of(problem(1), Rung::kDefaultConfig)->calls += 7;
  capture.counts_of(problem(1), Rung::kBucket)->calls += 2;
  capture.write_counts();
  EXPECT_THAT(text_of(file),
              ::testing::AllOf(
                  ::testing::HasSubstr("\"calls\":7,\"recorded\":0,\"rung\":\"default_config\"}"),
                  ::testing::HasSubstr("\"calls\":2,\"recorded\":0,\"rung\":\"bucket\"}")));
}

// A child counts only its own calls: the parent writes those before the fork.
TEST(Capture, AChildDoesNotWriteItsParentsCalls) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "capture.jsonl";
  Capture capture(file);
  const std::shared_ptr<CallCounts> counts = capture.counts_of(problem(1), Rung::kExact);
  counts->calls += 5;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    counts->calls += 2;
    capture.write_counts();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  capture.write_counts();
  const std::string text = text_of(file);
  EXPECT_LT(text.find("\"calls\":2"), text.find("\"calls\":5"));
  EXPECT_NE(text.find("\"calls\":5"), std::string::npos);
}

TEST(Capture, AForkedWorkerHasItsOwnFile) {
  const testing::TemporaryFolder folder;
  const auto file_of = [&](pid_t process) {
    return folder / ("calls-" + std::to_string(process) + ".jsonl");
  };
  Capture capture(folder / "calls-%p.jsonl");
  capture.note(problem(1));
  const std::shared_ptr<CallCounts> counts = capture.counts_of(problem(1), Rung::kExact);
  counts->calls += 5;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    counts->calls += 2;
    capture.write_counts();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  capture.write_counts();
  EXPECT_THAT(text_of(file_of(getpid())), ::testing::HasSubstr("\"calls\":5"));
  EXPECT_THAT(text_of(file_of(child)), ::testing::AllOf(::testing::HasSubstr(to_text(problem(1))),
                                                        ::testing::HasSubstr("\"calls\":2")));
}

}  // namespace
}  // namespace attune
