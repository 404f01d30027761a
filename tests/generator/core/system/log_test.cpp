// SPDX-License-Identifier: Apache-2.0
// Log messages go to the innermost ThreadLog of the thread, else to the process's sink.
#include "generator/core/system/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <thread>

namespace attune {
namespace {

using ::testing::ElementsAre;
using Texts = std::vector<std::string>;

LogSink into(Texts* texts) {
  return [texts](LogLevel, std::string_view text) { texts->emplace_back(text); };
}

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override { former_ = set_log_sink(into(&process_)); }
  void TearDown() override { set_log_sink(former_); }

  Texts process_;
  LogSink former_;
};

TEST_F(LogTest, TheSinkOfTheProcessIsReplaced) {
  Texts other;
  const LogSink mine = set_log_sink(into(&other));
  log(LogCode::kTuneOnMiss, "one");
  set_log_sink(mine);
  log(LogCode::kTuneOnMiss, "two");
  EXPECT_THAT(other, ElementsAre("AT503: one"));
  EXPECT_THAT(process_, ElementsAre("AT503: two"));
}

TEST_F(LogTest, TheInnermostThreadLogGetsTheMessage) {
  Texts outer, inner;
  const LogSink outer_sink = into(&outer), inner_sink = into(&inner);
  {
    const ThreadLog one(&outer_sink);
    {
      const ThreadLog two(&inner_sink);
      log(LogCode::kTuneOnMiss, "two");
      std::thread([] { log(LogCode::kTuneOnMiss, "elsewhere"); }).join();
    }
    log(LogCode::kTuneOnMiss, "one");
  }
  log(LogCode::kTuneOnMiss, "none");
  EXPECT_THAT(inner, ElementsAre("AT503: two"));
  EXPECT_THAT(outer, ElementsAre("AT503: one"));
  EXPECT_THAT(process_, ElementsAre("AT503: elsewhere", "AT503: none"));
}

TEST_F(LogTest, AThreadLogWithoutASinkPassesMessagesOn) {
  const LogSink empty;
  const ThreadLog nothing(nullptr), nobody(&empty);
  log(LogCode::kStoreNotRolledBack, "on");
  EXPECT_THAT(process_, ElementsAre("AT104: on"));
}

TEST_F(LogTest, ASinkDoesNotGetItsOwnMessages) {
  int calls = 0;
  const LogSink talkative = [&](LogLevel, std::string_view) {
    ++calls;
    log(LogCode::kFuzzCase, "an answer");
  };
  const ThreadLog mine(&talkative);
  log(LogCode::kFuzzCase, "first");
  log(LogCode::kFuzzCase, "second");
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(process_, ElementsAre("AT505: an answer", "AT505: an answer"));
}

TEST_F(LogTest, ACollectorKeepsWarningsOnceAndPassesAllOn) {
  const WarningCollector outer;
  {
    const WarningCollector inner;
    for (int i = 0; i < 2; ++i) log(LogCode::kTuneOnMiss, "damaged");
    log(LogCode::kFuzzCase, "by the way");
    log(LogCode::kStoreNotRolledBack, "lost");
    EXPECT_THAT(inner.texts(), ElementsAre("AT503: damaged", "AT104: lost"));
  }
  EXPECT_THAT(outer.texts(), ElementsAre("AT503: damaged", "AT104: lost"));
  EXPECT_THAT(process_,
              ElementsAre("AT503: damaged", "AT503: damaged", "AT505: by the way", "AT104: lost"));
}

// Programs match codes such as "AT101 warning". Never change a line of the list; add a line for a
// new code.
TEST(LogCodes, EqualTheList) {
  std::ifstream list(ATTUNE_LOG_CODES), page(ATTUNE_LOG_PAGE);
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  Texts listed, known;
  for (std::string line; std::getline(list, line);) listed.push_back(line);
  for (const LogCodeEntry& one : kLogCodes) {
    const std::string number = "AT" + std::to_string(static_cast<int>(one.code));
    const std::string level(log_level_name(one.level));
    known.push_back(number + " " + level);
    const std::string row = "| " + number + " | " + level + " | " + std::string(one.meaning) + " |";
    EXPECT_NE(text.find(row), std::string::npos) << "the page wants " << row;
  }
  EXPECT_EQ(known, listed);
}

}  // namespace
}  // namespace attune
