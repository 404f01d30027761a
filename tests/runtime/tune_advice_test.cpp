// SPDX-License-Identifier: Apache-2.0
// Log code AT302 and policy strict advise a tuning command. Following the advice literally must
// tune for the engine that gave it.
#include "runtime/engine/engine_options.hpp"

#include <gmock/gmock.h>

#include "generator/core/system/log.hpp"
#include "generator/score/language/user_program.hpp"
#include "tests/runtime/engine_fixture.hpp"

namespace attune {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class TuneAdviceTest : public EngineTest {
 protected:
  // Returns the warnings of a first plan of the problem.
  std::string said(const EngineOptions& chosen, const Problem& problem) const {
    Engine one = engine(chosen);
    const WarningCollector found;
    one.plan(problem);
    return found.texts().empty() ? "" : found.texts().back();
  }
  std::string command() const { return "`attune tune --problem " + to_text(problem_); }
};

TEST_F(TuneAdviceTest, NamesTargetAndStoreUnlessTheyAreTheDefaults) {
  EngineOptions chosen;
  chosen.user_store = folder_ / "my store.db";
  EXPECT_THAT(said(chosen, problem_), EndsWith("; " + command() + " --store '" +
                                               chosen.user_store.string() + "'` finds its kernel"));
  chosen.target = "auto";
  EXPECT_THAT(said(chosen, problem_), Not(HasSubstr("--target")));
  chosen.target = "cpu:1";
  EXPECT_THAT(said(chosen, problem_), HasSubstr(command() + " --target cpu:1 --store '"));
  chosen.policy = Policy::kStrict;
  std::string text;
  EXPECT_EQ(code_of([&] { engine(chosen).plan(problem_); }, &text), ErrorCode::kNotTuned);
  EXPECT_THAT(text, HasSubstr(command() + " --target cpu:1 --store '"));
}

TEST_F(TuneAdviceTest, SaysWhenTuningChangesNothing) {
  EngineOptions chosen = options();
  chosen.use_store = false;
  EXPECT_THAT(said(chosen, problem_), HasSubstr("this context has no store"));
  Problem slow = problem_;
  slow.dtype_q = slow.dtype_kv = slow.dtype_o = Dtype::kFp32;
  const std::string text = said(options(), slow);
  EXPECT_THAT(text, HasSubstr("tuning changes nothing; `attune explain --problem "));
  EXPECT_THAT(text, Not(HasSubstr("attune tune")));
}

TEST_F(TuneAdviceTest, AProgramIsNamedByDigestIfTheStoreHasItsText) {
  Problem problem = problem_;
  problem.scores.score_mod =
      read_user_program("return score * 0.25;", score::Kind::kScore, "x").digest;
  EXPECT_THAT(said(options(), problem), HasSubstr("attune tune --problem " + to_text(problem)));
  EngineOptions unkept = options();
  unkept.user_store = folder_ / "other.db";
  unkept.keep_images = false;
  const std::string text = said(unkept, problem);
  EXPECT_THAT(text, HasSubstr("a run with ATTUNE_CAPTURE=problems.jsonl, then `attune tune "
                              "--captured problems.jsonl --store "));
  unkept.use_store = false;
  EXPECT_THAT(said(unkept, problem), HasSubstr("; for one that has, a run with ATTUNE_CAPTURE="));
}

}  // namespace
}  // namespace attune
