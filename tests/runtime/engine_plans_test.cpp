// SPDX-License-Identifier: Apache-2.0
// Which problems share a plan, a winner or an image, and how many plans the engine keeps.
#include <gmock/gmock.h>

#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tests/runtime/engine_fixture.hpp"
#include "tests/runtime/image_key_of.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
using EnginePlansTest = EngineTest;

Problem at_length(int64_t seqlen, const std::string& mask) {
  return parse_problem("dtype=bf16,head_dim=128,heads=32/8,seqlen=" + std::to_string(seqlen) +
                       mask);
}

const std::string kTopLeft = ",mask=causal_top_left", kBottomRight = ",mask=causal_bottom_right";
const std::string kWideWindow = ",mask=causal_bottom_right,window=4095:-";

TEST_F(EnginePlansTest, FormsOfOneProblemHaveOnePlan) {
  put_winner(at_length(2048, kBottomRight));
  Engine engine = this->engine(options());
  const auto plan = engine.plan(at_length(2048, kTopLeft));
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->expected_us, 90);
  for (const std::string& mask : {kBottomRight, kWideWindow, std::string(",window=2047:0")})
    EXPECT_EQ(engine.plan(at_length(2048, mask)), plan) << mask;
  EXPECT_NE(engine.plan(at_length(2048, ",mask=none")), plan);
  EXPECT_EQ(engine.choose(at_length(2048, kWideWindow)).rung, Rung::kExact);
  const std::string text = plan->explain(at_length(2048, kTopLeft));
  EXPECT_THAT(text, HasSubstr("problem    " + to_text(at_length(2048, kTopLeft)) + "\n"));
  EXPECT_THAT(text, HasSubstr("the same   " + to_text(at_length(2048, kBottomRight)) + "\n"));
  EXPECT_THAT(plan->explain(), ::testing::Not(HasSubstr("the same")));
}

// Older stores keep a winner and its image under the form of the problem that was tuned.
TEST_F(EnginePlansTest, ATunedFormServesTheOthersWithItsOwnImage) {
  const Problem tuned = at_length(2048, kWideWindow);
  const WinnerRecord row = put_winner(tuned);
  KernelImage image = device_->compiler_.compile({}, parse_arch("sm_90a"));
  Store::open(folder_ / "store.db", StoreMode::kReadWrite)
      .put_image(testing::image_key_of(template_by_name(row.toolchain.template_name),
                                       spec_of(tuned), parse_arch(row.arch), row.config),
                 image);
  EngineOptions no_jit = options();
  no_jit.may_compile = false;
  for (const std::string& mask : {kWideWindow, kBottomRight, kTopLeft}) {
    const auto plan = engine(no_jit).plan(at_length(2048, mask));
    EXPECT_EQ(plan->rung, Rung::kExact) << mask;
    EXPECT_EQ(plan->image_from, "store") << mask;
  }
  EXPECT_EQ(code_of([&] { engine(no_jit).plan(at_length(8192, kBottomRight)); }),
            ErrorCode::kWouldCompile)
      << "there the window would hide keys";
}

TEST_F(EnginePlansTest, WithoutACompilerAnImageOfTheRequestedFormServes) {
  const Problem asked = at_length(2048, kWideWindow);
  const KernelSpec spec = spec_of(asked);
  const Arch arch = parse_arch("sm_90a");
  const KernelTemplate& best = *serving(spec, {arch}).best()->kernel_template;
  Store::open(folder_ / "store.db", StoreMode::kReadWrite)
      .put_image(testing::image_key_of(
                     best, spec, arch,
                     best.default_config(spec, arch, shape_of(asked), typical_device(arch).facts)),
                 device_->compiler_.compile({}, arch));
  EngineOptions no_jit = options();
  no_jit.may_compile = false;
  EXPECT_EQ(engine(no_jit).plan(asked)->image_from, "store");
}

TEST_F(EnginePlansTest, AFamilysWinnersAreReadOnceAtItsFirstPlan) {
  put_winner(problem_);
  Engine engine = this->engine(options());
  Problem longer = problem_;
  longer.seqlen_q = longer.seqlen_kv = 3 * 4096;
  Problem other = problem_;
  other.head_dim_qk = other.head_dim_v = 64;
  EXPECT_EQ(engine.plan(problem_)->rung, Rung::kExact);
  const auto before = engine.pin_digest();
  for (const Problem& late : {longer, other}) put_winner(late);
  EXPECT_NE(engine.plan(longer)->rung, Rung::kExact) << "its family was read before";
  EXPECT_EQ(engine.plan(other)->rung, Rung::kExact) << "its family was not read before";
  EXPECT_NE(engine.pin_digest(), before) << "the digest covers every family";
  std::filesystem::remove(folder_ / "store.db");
  EXPECT_EQ(engine.plan(problem_)->rung, Rung::kExact);
}

TEST_F(EnginePlansTest, TheLeastRecentlyUsedPlansAreDropped) {
  EngineOptions few = options();
  few.max_plans = 3;
  Engine engine = this->engine(few);
  const auto first = engine.plan(at_length(1000, ""));
  const auto second = engine.plan(at_length(1001, ""));
  engine.plan(at_length(1002, ""));
  EXPECT_EQ(engine.plan(at_length(1000, "")), first);  // now 1001 is the oldest
  engine.plan(at_length(1003, ""));
  EXPECT_EQ(engine.plan(at_length(1000, "")), first);
  const int compiled = device_->compiler_.total();
  EXPECT_NE(engine.plan(at_length(1001, "")), second) << "it was dropped and made again";
  EXPECT_EQ(device_->compiler_.total(), compiled) << "its kernel stayed loaded";
  EXPECT_EQ(second->problem.seqlen_q, 1001) << "a plan in use stays valid";
}

TEST_F(EnginePlansTest, PlansInUseOutliveTheirPlaceInTheCache) {
  EngineOptions one = options();
  one.max_plans = 1;
  Engine engine = this->engine(one);
  std::vector<std::shared_ptr<const Plan>> held;
  for (int64_t seqlen = 1; seqlen <= 200; ++seqlen)
    held.push_back(engine.plan(at_length(seqlen, "")));
  for (const auto& plan : held) EXPECT_EQ(plan->kernel->info().registers, 168);
  EXPECT_EQ(engine.plan(at_length(200, "")), held.back());
}

TEST_F(EnginePlansTest, ANoisyTimeIsNotAnExpectedTime) {
  WinnerRecord row = put_winner(problem_);
  row.timing.lo_us = 88;
  row.timing.hi_us = 130;
  Store::open(folder_ / "store.db", StoreMode::kReadWrite)
      .put_winner({row.spec, row.shape, device_->identity(), {"test"}}, row);
  const auto plan = engine(options()).plan(problem_);
  EXPECT_EQ(plan->rung, Rung::kExact);
  EXPECT_EQ(plan->expected_us, 0);
  EXPECT_THAT(plan->explain(), HasSubstr("90.0 us (95 %: 88.0 to 130.0, noisy), default "));
  EXPECT_THAT(plan->explain(), HasSubstr("`attune tune` measures it anew"));
}

}  // namespace
}  // namespace attune
