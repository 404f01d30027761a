// SPDX-License-Identifier: Apache-2.0
// Shards: valid values of --shard, variables of schedulers, and that each problem is assigned.
#include "tuner/search/shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Shard shard(const std::string& text, const Variables& variables = {}) {
  return parse_shard(text, [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const std::string& text, const Variables& variables = {}) {
  return testing::error_text([&] { shard(text, variables); }, ErrorCode::kInvalidArgument);
}

TEST(Shard, TextsAreRead) {
  EXPECT_EQ(shard("0/1"), (Shard{0, 1}));
  EXPECT_EQ(shard("7/8"), (Shard{7, 8}));
  for (const char* bad : {"", "/", "8/8", "-1/8", "1", "1/", "/8", "1/0", "a/8", "1/8x", "1/8/9",
                          "env/0", "env/x", "99999999999/8", "0/1000001"})
    EXPECT_THAT(refusal(bad, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
                HasSubstr(std::string("--shard is \"") + bad + "\"; must be I/N"))
        << bad;
}

TEST(Shard, ShardIsReadFromSchedulerVariables) {
  EXPECT_EQ(shard("env", {{"RANK", "3"}, {"WORLD_SIZE", "16"}}), (Shard{3, 16}));
  EXPECT_EQ(shard("env", {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            (Shard{1, 2}));
  EXPECT_EQ(shard("env", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), (Shard{1, 2}));
  EXPECT_EQ(shard("env", {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}}), (Shard{5, 6}));
  EXPECT_EQ(shard("env/4", {{"JOB_COMPLETION_INDEX", "2"}}), (Shard{2, 4}));
}

TEST(Shard, SlurmsArraysNeedNotCountFromZero) {
  const Variables array{{"SLURM_ARRAY_TASK_ID", "13"},
                        {"SLURM_ARRAY_TASK_COUNT", "4"},
                        {"SLURM_ARRAY_TASK_MIN", "5"},
                        {"SLURM_ARRAY_TASK_STEP", "4"}};
  EXPECT_EQ(shard("env", array), (Shard{2, 4}));
  Variables in_a_batch_script = array;  // a job of one process has these too
  in_a_batch_script.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(shard("env", in_a_batch_script), (Shard{2, 4}));
}

TEST(Shard, IncompleteSchedulerVariablesAreRefused) {
  EXPECT_THAT(refusal("env"), HasSubstr("none of RANK, OMPI_COMM_WORLD_RANK"));
  EXPECT_THAT(refusal("env", {{"JOB_COMPLETION_INDEX", "2"}}),
              HasSubstr("JOB_COMPLETION_INDEX is 2, but no variable gives the number of shards"));
  EXPECT_THAT(refusal("env/2", {{"JOB_COMPLETION_INDEX", "2"}}), HasSubstr("shard 2 of 2"));
  EXPECT_THAT(refusal("env", {{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("environment variable RANK is \"x\""));
  EXPECT_THAT(refusal("env", {{"RANK", "0"},
                              {"WORLD_SIZE", "2"},
                              {"SLURM_ARRAY_TASK_ID", "1"},
                              {"SLURM_ARRAY_TASK_COUNT", "4"}}),
              HasSubstr("RANK says 0/2 and SLURM_ARRAY_TASK_ID says 1/4"));
  EXPECT_EQ(
      shard("env",
            {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}),
      (Shard{1, 2}))
      << "two that agree";
}

std::vector<Problem> problems(int count) {
  std::vector<Problem> list;
  for (int i = 0; i < count; ++i)
    list.push_back(
        parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=" + std::to_string(64 + i)));
  return list;
}

TEST(Shard, EveryProblemIsDealtToTheRequestedNumberOfShards) {
  for (const int count : {1, 2, 3, 7, 16})
    for (const int replicate : {1, 2, 3}) {
      if (replicate > count) continue;
      SCOPED_TRACE(::testing::Message() << count << " shards, " << replicate << " times");
      const std::vector<Problem> all = problems(20);
      std::map<std::string, int> times;
      size_t least = all.size(), most = 0;
      for (int index = 0; index < count; ++index) {
        const std::vector<Problem> mine = problems_of_shard(all, {index, count}, replicate);
        least = std::min(least, mine.size()), most = std::max(most, mine.size());
        for (const Problem& problem : mine) ++times[to_text(problem)];
      }
      EXPECT_EQ(times.size(), all.size());
      for (const auto& [text, number] : times) EXPECT_EQ(number, replicate) << text;
      EXPECT_LE(most - least, static_cast<size_t>(replicate));
    }
}

TEST(Shard, TheOrderOfTheListDoesNotMatter) {
  const std::vector<Problem> all = problems(9);
  std::vector<Problem> backwards(all.rbegin(), all.rend());
  backwards.push_back(all.front());  // a duplicate
  for (int index = 0; index < 4; ++index) {
    std::vector<Problem> mine = problems_of_shard(all, {index, 4}, 1);
    std::vector<Problem> other = problems_of_shard(backwards, {index, 4}, 1);
    std::reverse(other.begin(), other.end());
    const auto texts = [](const std::vector<Problem>& list) {
      std::vector<std::string> all_texts;
      for (const Problem& one : list) all_texts.push_back(to_text(one));
      std::sort(all_texts.begin(), all_texts.end());
      return all_texts;
    };
    EXPECT_EQ(texts(mine), texts(other));
  }
}

TEST(Shard, MoreReplicasThanShardsAreRefused) {
  for (const int replicate : {0, 3, -1})
    EXPECT_THROW(problems_of_shard(problems(2), {0, 2}, replicate), Error) << replicate;
}

}  // namespace
}  // namespace attune
