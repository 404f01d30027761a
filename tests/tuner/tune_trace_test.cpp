// SPDX-License-Identifier: Apache-2.0
// The trace of a tune, as a viewer reads it.
#include "tuner/search/tune_trace.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <thread>

namespace attune {
namespace {

using Json = nlohmann::json;

std::vector<Json> spans_of(const TuneTrace& trace) {
  std::vector<Json> found;
  const Json all = Json::parse(trace.json());
  for (const Json& event : all.at("traceEvents"))
    if (event.at("ph") == "X") found.push_back(event);
  return found;
}

TEST(TuneTrace, SpansBeginInOrderAndNest) {
  TuneTrace trace;
  {
    TraceSpan outer(&trace, "shape");
    outer.name("dtype=bf16 \"quoted\"\n\xff");  // a config or a compiler may say anything
    TraceSpan inner(&trace, "time");
    inner.name("2 kernels in turn");
    inner.argument("kernel", "a");
    inner.argument("kernel", "b");
    inner.argument("rounds", "3");
  }
  const std::vector<Json> spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].at("cat"), "shape");
  EXPECT_EQ(spans[1].at("args"), Json::parse(R"({"kernel": ["a", "b"], "rounds": "3"})"));
  EXPECT_LE(spans[0].at("ts"), spans[1].at("ts"));
  EXPECT_GE(spans[0].at("ts").get<double>() + spans[0].at("dur").get<double>(),
            spans[1].at("ts").get<double>() + spans[1].at("dur").get<double>());
  EXPECT_EQ(spans[0].at("tid"), spans[1].at("tid"));
}

TEST(TuneTrace, ThreadsHaveSeparateLines) {
  TuneTrace trace;
  { TraceSpan here(&trace, "check"); }
  std::thread([&] { TraceSpan there(&trace, "compile"); }).join();
  const std::vector<Json> spans = spans_of(trace);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_NE(spans[0].at("tid"), spans[1].at("tid"));
  std::map<int, std::string> names;
  const Json all = Json::parse(trace.json());
  for (const Json& event : all.at("traceEvents"))
    if (event.at("ph") == "M") names[event.at("tid")] = event.at("args").at("name");
  EXPECT_EQ(names[spans[0].at("tid")], "device");
  EXPECT_EQ(names[spans[1].at("tid")], "compiler");
}

TEST(TuneTrace, WithoutOneNothingIsKept) {
  TraceSpan span(nullptr, "time");
  EXPECT_FALSE(span.is_on());
  EXPECT_TRUE(spans_of(TuneTrace()).empty());
}

}  // namespace
}  // namespace attune
