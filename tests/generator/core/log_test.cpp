// SPDX-License-Identifier: Apache-2.0
// Who gets what is logged: the innermost ThreadLog of the thread, else the process's sink.
#include "generator/core/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  log(LogLevel::kWarning, "one");
  set_log_sink(mine);
  log(LogLevel::kWarning, "two");
  EXPECT_THAT(other, ElementsAre("one"));
  EXPECT_THAT(process_, ElementsAre("two"));
}

TEST_F(LogTest, TheInnermostOfTheThreadGetsIt) {
  Texts outer, inner;
  const LogSink outer_sink = into(&outer), inner_sink = into(&inner);
  {
    const ThreadLog one(&outer_sink);
    {
      const ThreadLog two(&inner_sink);
      log(LogLevel::kWarning, "two");
      std::thread([] { log(LogLevel::kWarning, "elsewhere"); }).join();
    }
    log(LogLevel::kWarning, "one");
  }
  log(LogLevel::kWarning, "none");
  EXPECT_THAT(inner, ElementsAre("two"));
  EXPECT_THAT(outer, ElementsAre("one"));
  EXPECT_THAT(process_, ElementsAre("elsewhere", "none"));
}

TEST_F(LogTest, OneWithoutASinkLetsMessagesThrough) {
  const LogSink empty;
  const ThreadLog nothing(nullptr), nobody(&empty);
  log(LogLevel::kError, "on");
  EXPECT_THAT(process_, ElementsAre("on"));
}

TEST_F(LogTest, WhatASinkLogsDoesNotComeBackToIt) {
  int calls = 0;
  const LogSink talkative = [&](LogLevel level, std::string_view) {
    ++calls;
    log(level, "an answer");
  };
  const ThreadLog mine(&talkative);
  log(LogLevel::kInfo, "first");
  log(LogLevel::kInfo, "second");
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(process_, ElementsAre("an answer", "an answer"));
}

TEST_F(LogTest, ACollectorKeepsWarningsOnceAndPassesAllOn) {
  const WarningCollector outer;
  {
    const WarningCollector inner;
    for (int i = 0; i < 2; ++i) log(LogLevel::kWarning, "damaged");
    log(LogLevel::kInfo, "by the way");
    log(LogLevel::kError, "lost");
    EXPECT_THAT(inner.texts(), ElementsAre("damaged", "lost"));
  }
  EXPECT_THAT(outer.texts(), ElementsAre("damaged", "lost"));
  EXPECT_THAT(process_, ElementsAre("damaged", "damaged", "by the way", "lost"));
}

}  // namespace
}  // namespace attune
