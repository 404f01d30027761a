// SPDX-License-Identifier: Apache-2.0
// Captured problems are merged by bucket, in the order of their time. Bad lines are refused with
// their number.
#include "tuner/models/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CapturedTest : public ::testing::Test {
 protected:
  ~CapturedTest() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::vector<std::string> texts(const Workload& workload) {
    std::vector<std::string> all;
    for (const Problem& problem : workload.problems) all.push_back(to_text(problem));
    return all;
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("attune_captured_" + std::to_string(::getpid()));
};

std::string line_of(const std::string& problem, int64_t calls = 0, int64_t recorded = 0) {
  return "{\"problem\": \"" + problem + "\", \"calls\": " + std::to_string(calls) +
         ", \"recorded\": " + std::to_string(recorded) + "}\n";
}

std::string decode(int64_t keys) {
  return "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen_q=1,seqlen_kv=" +
         std::to_string(keys) + ",page_size=16";
}

TEST_F(CapturedTest, CapturedProblemsAreReadLineByLine) {
  write(
      "{\"problem\": \"dtype=bf16,head_dim=64,heads=8/2,seqlen=33\"}\n\n{\"problem\": "
      "\"head_dim=64,heads=8/2,seqlen=33,dtype=bf16\"}\n"
      "{\"problem\": \"dtype=fp16,head_dim=64,heads=8/2,seqlen=34\", \"calls\": 3}\n");
  EXPECT_EQ(workload_from_captures({path_}).problems.size(), 2U);
  const auto error_of = [&](const std::string& text) -> std::string {
    write(text);
    return testing::error_text([&] { workload_from_captures({path_}); });
  };
  EXPECT_THAT(error_of("{\"problem\": \"head_dim=64,heads=8,seqlen=3\"}\n{oops\n"),
              HasSubstr("line 2: not JSON"));
  EXPECT_THAT(
      error_of("{\"problem\": \"head_dim=64,heads=8,seqlen=3\"}\n{\"problem\": \"head_d"),
      AllOf(HasSubstr(path_.string() + ", line 2: not JSON"),
            HasSubstr("; each line must be a whole object such as {\"problem\": \"dtype=bf16")));
  EXPECT_THAT(error_of("{\"problem\": \"head_dim=64,heads=8/3,seqlen=3\"}\n"),
              HasSubstr("line 1: num_heads_q is 8 and num_heads_kv is 3"));
  EXPECT_THAT(error_of("{\"text\": 3}\n"), HasSubstr("line 1: the line has no \"problem\" text"));
  EXPECT_THAT(error_of("\n"), HasSubstr("no captured problem"));
}

// A loop over 500 lengths is two buckets. The heaviest length stands for its bucket.
TEST_F(CapturedTest, LengthsOfABucketAreOneProblem) {
  std::string text;
  for (int64_t keys = 525; keys < 1025; ++keys)
    text += line_of(decode(keys), keys == 700 ? 64 : 32);
  for (int64_t keys = 1025; keys < 1045; ++keys) text += line_of(decode(keys));
  write(text);
  const Workload workload = workload_from_captures({path_});
  ASSERT_EQ(workload.problems.size(), 2U);
  EXPECT_EQ(workload.problems[0].seqlen_kv, 700);
  EXPECT_EQ(workload.remarks.at(to_text(workload.problems[0])),
            "500 shapes, 16032 calls, 100.0 % of the time");
  EXPECT_EQ(workload.remarks.at(to_text(workload.problems[1])), "20 shapes, 0.0 % of the time");
}

TEST_F(CapturedTest, TopKeepsTheLongestTime) {
  const std::string prompt = "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal";
  write(line_of(decode(1000), 100) + line_of(prompt, 100) + line_of(decode(100000), 1) +
        line_of(decode(1000), 3));
  const Workload all = workload_from_captures({path_});
  EXPECT_EQ(all.problems.size(), 3U);
  EXPECT_EQ(all.problems[0].seqlen_q, 4096);
  EXPECT_THAT(all.remarks.at(to_text(all.problems[1])), HasSubstr("103 calls"));
  const Workload two = workload_from_captures({path_}, Target::kCuda, 2);
  EXPECT_EQ(two.problems.size(), 2U);
  EXPECT_EQ(texts(two), (std::vector{texts(all)[0], texts(all)[1]}));
  EXPECT_THAT(two.notes, ElementsAre(AllOf(HasSubstr("--top 2: 2 of 3 buckets are kept, with 9"),
                                           HasSubstr("% of the time"))));
}

// Nobody counts how often a graph is replayed, so its calls come before all others.
TEST_F(CapturedTest, CallsInGraphsComeFirst) {
  write(line_of(decode(1000), 100000) + line_of(decode(100), 0, 32));
  const Workload workload = workload_from_captures({path_}, Target::kCuda, 1);
  ASSERT_EQ(workload.problems.size(), 1U);
  EXPECT_EQ(workload.problems[0].seqlen_kv, 100);
  EXPECT_THAT(workload.remarks.begin()->second, HasSubstr("32 in CUDA graphs"));
}

TEST_F(CapturedTest, CallsOfTunedKernelsAreSaid) {
  const auto line = [](const std::string& problem, int64_t calls, const std::string& rung) {
    return "{\"problem\": \"" + problem + "\", \"calls\": " + std::to_string(calls) +
           ", \"rung\": \"" + rung + "\"}\n";
  };
  write(line(decode(1000), 60, "exact") + line(decode(1000), 15, "default_config") +
        line(decode(90), 25, "reference") + line_of(decode(90), 1000));
  EXPECT_THAT(workload_from_captures({path_}).notes,
              ElementsAre("60.0 % of the calls ran a tuned kernel (exact 60, default_config 15, "
                          "reference 25)"));
  write(line(decode(1000), 1, "fast"));
  EXPECT_THAT(testing::error_text([&] { workload_from_captures({path_}); }),
              HasSubstr("line 1: \"rung\" is \"fast\"; must be one of pinned, exact, bucket"));
}

// Files of older versions, and of programs that were killed, have no counts.
TEST_F(CapturedTest, WithoutCountsTheLongestProblemsCount) {
  std::string text;
  for (const int64_t keys : {129, 256, 200, 5000})
    text += "{\"problem\": \"" + decode(keys) + "\"}\n";
  write(text);
  const Workload workload = workload_from_captures({path_});
  ASSERT_EQ(workload.problems.size(), 2U);
  EXPECT_EQ(workload.problems[0].seqlen_kv, 5000);
  EXPECT_EQ(workload.problems[1].seqlen_kv, 256);
  EXPECT_EQ(workload_from_captures({path_}, Target::kCuda, 1).problems[0].seqlen_kv, 5000);
  EXPECT_THAT(workload.remarks.at(to_text(workload.problems[1])), "3 shapes");
}

// Each worker of a program may write a file of its own.
TEST_F(CapturedTest, FilesAreAddedUp) {
  const std::filesystem::path folder = path_.string() + "_workers";
  std::filesystem::create_directory(folder);
  EXPECT_THAT(testing::error_text([&] { workload_from_captures({folder}); }, ErrorCode::kIo),
              HasSubstr("the folder has no file *.jsonl"));
  std::ofstream(folder / "7.jsonl") << line_of(decode(600), 5) << line_of(decode(900), 1);
  std::ofstream(folder / "8.jsonl") << line_of(decode(700), 5) << line_of(decode(700), 5, 2);
  std::ofstream(folder / "8.jsonl.part") << "no capture";
  write(line_of(decode(600), 20) + line_of(decode(100), 3));
  const Workload all = workload_from_captures({folder, path_});
  ASSERT_EQ(all.problems.size(), 2U);
  EXPECT_EQ(all.name, "3 captures");
  EXPECT_EQ(all.problems[0].seqlen_kv, 600) << "25 calls, of two files, take the longest time";
  EXPECT_THAT(all.remarks.at(to_text(all.problems[0])),
              HasSubstr("3 shapes, 36 calls, 2 in CUDA graphs"));
  EXPECT_EQ(texts(workload_from_captures({folder / "7.jsonl", folder / "8.jsonl", path_})),
            texts(all));
  write("oops\n");
  EXPECT_THAT(testing::error_text([&] {
                workload_from_captures({folder, path_});
              }),
              HasSubstr(path_.string() + ", line 1: not JSON"));
  std::filesystem::remove_all(folder);
}

// A file may have many lines of one problem.
TEST_F(CapturedTest, CountsDoNotOverflow) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += line_of(decode(100), 1'000'000'000'000'000);
  write(text);
  EXPECT_THAT(workload_from_captures({path_}).remarks.begin()->second,
              HasSubstr("1000000000000000000 calls"));
}

TEST_F(CapturedTest, BadCountsAreRefused) {
  for (const char* value : {"-1", "1.5", "\"3\"", "9000000000000000000", "18446744073709551615"}) {
    write("{\"problem\": \"head_dim=64,heads=8,seqlen=3\", \"calls\": " + std::string(value) + "}");
    EXPECT_THAT(testing::error_text([&] { workload_from_captures({path_}); }),
                AllOf(HasSubstr("line 1: \"calls\" is "), HasSubstr("must be an integer")));
  }
  EXPECT_THROW(workload_from_captures({"/nonexistent/captured.jsonl"}), Error);
}

}  // namespace
}  // namespace attune
