// SPDX-License-Identifier: Apache-2.0
// Answers that an engine gives without running kernels: foresee() against plan(), damaged files, a
// workspace that was not prepared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/runtime/engine_fixture.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

TEST_F(EngineTest, ForeseeSaysWhatPlanWouldGive) {
  put_winner(problem_);
  EngineOptions no_jit = options();
  no_jit.may_compile = false;
  std::string foreseen, met;
  EXPECT_EQ(code_of([&] { engine(no_jit).foresee(problem_); }, &foreseen),
            ErrorCode::kWouldCompile);
  EXPECT_EQ(code_of([&] { engine(no_jit).plan(problem_); }, &met), ErrorCode::kWouldCompile);
  EXPECT_EQ(foreseen, met);

  const Plan before = engine(options()).foresee(problem_);
  EXPECT_EQ(before.rung, Rung::kExact);
  EXPECT_EQ(before.image_from, "compiler fake 1.0");
  EXPECT_FALSE(before.kernel);
  EXPECT_EQ(device_->compiler_.total(), 0);
  engine(options()).plan(problem_);  // keeps the image
  EXPECT_EQ(engine(no_jit).foresee(problem_).image_from, "store");

  device_->no_compiler = true;
  const Problem other = parse_problem("dtype=bf16,head_dim=64,heads=8,seqlen=300");
  EXPECT_EQ(code_of([&] { engine(options()).foresee(other); }, &foreseen), ErrorCode::kCompile);
  EXPECT_EQ(code_of([&] { engine(options()).plan(other); }, &met), ErrorCode::kCompile);
  EXPECT_EQ(foreseen, met);
}

TEST_F(EngineTest, AnUnusableStoreIsReported) {
  std::ofstream(folder_ / "store.db") << "no database, whatever its name says";
  std::filesystem::permissions(folder_ / "store.db", std::filesystem::perms::owner_all);
  const auto plan = engine(options()).plan(problem_);
  ASSERT_FALSE(plan->warnings.empty());
  EXPECT_THAT(plan->warnings.front(), HasSubstr((folder_ / "store.db").string()));
  EXPECT_THAT(plan->explain(), HasSubstr("warning    "));
}

TEST_F(EngineTest, RunRefusesADirtyWorkspaceIfCheckingIsOn) {
  EngineOptions checking = options();
  checking.check_workspace = true;
  const auto plan = engine(checking).plan(problem_);
  ASSERT_GT(plan->launch.zeroed_bytes, 0);
  char* const base = reinterpret_cast<char*>(0x10000);
  const Operands operands = contiguous_operands(problem_, base, base, base, base, nullptr);
  std::vector<char> memory(static_cast<size_t>(plan->workspace_bytes()) + 256, 0);
  char* const workspace = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256);
  const auto run_it = [&] { run(*plan, operands, workspace, plan->workspace_bytes(), nullptr); };
  workspace[3] = 1;
  std::string text;
  EXPECT_EQ(code_of(run_it, &text), ErrorCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("is not zero in byte 3"));
  EXPECT_THAT(text, HasSubstr("attune_workspace_init"));
  EXPECT_EQ(device_->seen->launches, 0);
  device_->is_capturing = true;  // a capture must not wait for the device
  EXPECT_NO_THROW(run_it());
  EXPECT_EQ(device_->seen->launches, 1);
  device_->is_capturing = false;
  init_workspace(*plan, workspace, plan->workspace_bytes(), nullptr);
  EXPECT_NO_THROW(run_it());
  EXPECT_EQ(device_->seen->launches, 2);
}

}  // namespace
}  // namespace attune
