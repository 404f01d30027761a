// SPDX-License-Identifier: Apache-2.0
// Capture files: each problem once, whole lines, and one warning when writing fails.
#include "runtime/engine/capture.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

}  // namespace
}  // namespace attune
