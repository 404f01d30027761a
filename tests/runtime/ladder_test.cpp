// SPDX-License-Identifier: Apache-2.0
// The ladder as a pure function: the rung that serves, by winners and policy.
#include "runtime/engine/ladder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/families/served.hpp"

namespace attune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A template with one knob, block, whose default is 64, and `large` on an H200.
class OneKnob final : public KernelTemplate {
 public:
  explicit OneKnob(std::string name, int large = 64) : name_(std::move(name)), large_(large) {}
  bool is_reference() const override { return name_ == "plain"; }
  std::string_view name() const override { return name_; }
  std::string_view source_path() const override { return ""; }
  std::string_view knobs_path() const override { return ""; }
  const Served& serves() const override { return serves_masks_and_8_bits(); }
  SearchSpace space(const KernelSpec&, const Arch&) const override {
    return SearchSpace({{"block", {32, 64, 128}, "rows"}}, {});
  }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts& device) const override {
    return Config({{"block", device.sm_count == 132 ? large_ : 64}});
  }
  std::optional<std::string> unfit(const KernelSpec&, const Config& config,
                                   const Shape& shape) const override {
    if (config.at("block") != 32 || shape.seqlen_q <= 5000) return std::nullopt;
    return "blocks of 32 are for up to 5000 rows";
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const override { return {}; }
  LaunchStructure structure(const KernelSpec&, const Config&) const override { return {}; }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }
  double predicted_cost(const KernelSpec&, const Arch&, const Config&, const Shape&,
                        const DeviceFacts&) const override {
    return 1;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch&) const override {
    return std::nullopt;
  }

  std::string name_;
  int large_;
};

class LadderTest : public ::testing::Test {
 protected:
  Problem problem(int64_t seqlen) const {
    return parse_problem("dtype=bf16,head_dim=128,heads=8,batch=1,seqlen=" +
                         std::to_string(seqlen));
  }
  WinnerRecord winner(int64_t seqlen, int64_t block = 128) const {
    WinnerRecord row;
    row.spec = spec_of(problem(seqlen));
    row.shape = shape_of(problem(seqlen));
    row.toolchain = {"tiled", "digest", "fake", ""};
    row.arch = "sm_90";
    row.config = Config({{"block", block}});
    row.timing.median_us = 90;
    row.default_timing.median_us = 100;
    row.why = "fastest by 10 %";
    return row;
  }
  Ladder climb_for(int64_t seqlen, const std::vector<WinnerRecord>& winners,
                   Policy policy = Policy::kDefault,
                   Compiling compiling = Compiling::kAllowed) const {
    return climb_for(problem(seqlen), winners, policy, compiling);
  }
  Ladder climb_for(const Problem& asked, const std::vector<WinnerRecord>& winners,
                   Policy policy = Policy::kDefault,
                   Compiling compiling = Compiling::kAllowed) const {
    const auto digest_of = [this](const KernelTemplate&) {
      return ++digests_asked_, rules_digest_;
    };
    return climb(asked, serving_, winners, device_, {policy, compiling, digest_of});
  }
  // Returns a problem with any mask and window, at the lengths of `seqlen`.
  Problem masked(int64_t seqlen, const std::string& mask) const {
    return parse_problem("dtype=bf16,head_dim=128,heads=8,seqlen=" + std::to_string(seqlen) + mask);
  }
  WinnerRecord winner_of(const Problem& tuned, int64_t block = 128) const {
    WinnerRecord row = winner(tuned.seqlen_q, block);
    row.spec = spec_of(tuned);
    return row;
  }
  WinnerRecord with_threads(WinnerRecord row, int threads) const {
    row.device = device_;
    row.device.sm_count = threads;
    return row;
  }
  static std::vector<Rung> rungs(const Ladder& ladder) {
    std::vector<Rung> all;
    for (const Choice& choice : ladder.choices) all.push_back(choice.rung);
    return all;
  }

  mutable int digests_asked_ = 0;
  std::string rules_digest_ = "digest";  // of every template
  DeviceIdentity device_{"cpu:test", 4, 0, 0, 0, 0, 0, "+avx2", "Test CPU", ""};
  OneKnob tiled_{"tiled"}, reference_{"plain"};
  Serving serving_{{{&tiled_, parse_arch("sm_90")}}, Family{&reference_, parse_arch("sm_90")}, {}};
};

TEST_F(LadderTest, WithoutWinnersTheDefaultComesBeforeTheReference) {
  const Ladder ladder = climb_for(1000, {});
  EXPECT_THAT(rungs(ladder), ElementsAre(Rung::kDefaultConfig, Rung::kReference));
  EXPECT_EQ(ladder.choices[0].config.at("block"), 64);
  EXPECT_THAT(ladder.choices[0].why, HasSubstr("no tuned shape"));
}

// `attune compile` without a device makes kernels for the facts of the arch's typical device.
TEST_F(LadderTest, WithoutACompilerTheDefaultOfTheTypicalDeviceIsAChoiceToo) {
  const OneKnob follows("follows", 128);
  const Serving serving{{{&follows, parse_arch("sm_90")}}, std::nullopt, {}};
  DeviceIdentity device{"sm_90", 114, 0, 0, 50 << 20, 0, 0, "", "NVIDIA H100 PCIe", ""};
  const auto choices = [&](Compiling compiling) {
    return climb(problem(1000), serving, {}, device, {Policy::kDefault, compiling, {}}).choices;
  };
  ASSERT_EQ(choices(Compiling::kNever).size(), 2u);
  EXPECT_EQ(choices(Compiling::kNever)[0].config.at("block"), 64);
  EXPECT_EQ(choices(Compiling::kNever)[1].config.at("block"), 128);
  EXPECT_THAT(choices(Compiling::kNever)[1].why, HasSubstr("as it is for NVIDIA H200"));
  EXPECT_EQ(choices(Compiling::kAllowed).size(), 1u);
  device.sm_count = 132;
  EXPECT_EQ(choices(Compiling::kNever).size(), 1u);  // both devices have the same default
}

// Computing digests costs more than the rest of the ladder.
TEST_F(LadderTest, DigestsAreComputedOnlyForWinners) {
  climb_for(1000, {});
  EXPECT_EQ(digests_asked_, 0);
  climb_for(1000, {winner(1000)});
  EXPECT_EQ(digests_asked_, 1);
}

TEST_F(LadderTest, AWinnerThatIsNoChoiceForTheShapeIsPassedOver) {
  const Ladder near = climb_for(5000, {winner(4900, 32)});
  EXPECT_EQ(near.choices[0].rung, Rung::kBucket);
  const Ladder far = climb_for(5001, {winner(4900, 32)});
  EXPECT_THAT(rungs(far), ElementsAre(Rung::kDefaultConfig, Rung::kReference));
  ASSERT_EQ(far.passed_over.size(), 1u);
  EXPECT_THAT(far.passed_over[0], HasSubstr("blocks of 32 are for up to 5000 rows"));
}

TEST_F(LadderTest, RungsComeInTheOrderOfTheLadder) {
  WinnerRecord pinned = winner(1000, 32);
  pinned.pinned = true;
  const Ladder ladder = climb_for(1000, {winner(2000), winner(900), winner(1000), pinned});
  EXPECT_THAT(rungs(ladder), ElementsAre(Rung::kPinned, Rung::kExact, Rung::kBucket, Rung::kNearest,
                                         Rung::kDefaultConfig, Rung::kReference));
  EXPECT_EQ(ladder.choices[0].config.at("block"), 32);
  EXPECT_EQ(ladder.choices[1].distance, 0);
  EXPECT_EQ(ladder.choices[2].winner->shape.seqlen_q, 900);
}

TEST_F(LadderTest, TheNearerOfTwoIsTakenFirst) {
  const Ladder ladder = climb_for(1000, {winner(4000), winner(2000)});
  ASSERT_EQ(ladder.choices[0].rung, Rung::kNearest);
  EXPECT_EQ(ladder.choices[0].winner->shape.seqlen_q, 2000);
  EXPECT_NEAR(ladder.choices[0].distance, std::sqrt(2.0), 0.01);  // one octave in q and one in kv
}

TEST_F(LadderTest, NearestIsPassedOverIfTheDefaultWon) {
  WinnerRecord equal = winner(2000);
  equal.default_is_winner = true;
  const Ladder ladder = climb_for(1000, {equal});
  EXPECT_EQ(ladder.choices[0].rung, Rung::kDefaultConfig);
  EXPECT_THAT(ladder.passed_over, ElementsAre(HasSubstr("the default config was as good there")));
}

TEST_F(LadderTest, ExactServesEvenIfTheDefaultWon) {
  WinnerRecord equal = winner(1000, 64);
  equal.default_is_winner = true;
  EXPECT_EQ(climb_for(1000, {equal}).choices[0].rung, Rung::kExact);
}

TEST_F(LadderTest, FarShapesAreLeftToTheDefault) {
  const Ladder ladder = climb_for(1000, {winner(64000)});
  EXPECT_EQ(ladder.choices[0].rung, Rung::kDefaultConfig);
  EXPECT_THAT(ladder.passed_over, ElementsAre(HasSubstr("farther than 3")));
}

TEST_F(LadderTest, WithoutACompilerFarShapesComeBeforeTheReference) {
  const Ladder ladder = climb_for(1000, {winner(64000)}, Policy::kDefault, Compiling::kNever);
  EXPECT_THAT(rungs(ladder), ElementsAre(Rung::kDefaultConfig, Rung::kNearest, Rung::kReference));
}

TEST_F(LadderTest, PolicyStrictStopsAtTheBucket) {
  EXPECT_THAT(rungs(climb_for(1000, {winner(900)}, Policy::kStrict)), ElementsAre(Rung::kBucket));
  EXPECT_TRUE(climb_for(1000, {winner(2000)}, Policy::kStrict).choices.empty());
}

TEST_F(LadderTest, PolicyNearestGoesAnyDistanceButNotToTheDefault) {
  EXPECT_THAT(rungs(climb_for(1000, {winner(64000)}, Policy::kNearest)),
              ElementsAre(Rung::kNearest));
  EXPECT_TRUE(climb_for(1000, {}, Policy::kNearest).choices.empty());
}

TEST_F(LadderTest, AWinnerOfAnotherTemplateTextIsStale) {
  WinnerRecord stale = winner(1000);
  stale.toolchain.template_digest = "older";
  const Ladder ladder = climb_for(1000, {stale});
  EXPECT_EQ(ladder.choices[0].rung, Rung::kDefaultConfig);
  EXPECT_THAT(ladder.passed_over, ElementsAre(HasSubstr("the template has changed since")));
}

TEST_F(LadderTest, AWinnerOfAnotherTextOfTheRevisionIsTakenAndSaysSo) {
  rules_digest_ = "r1.now";
  WinnerRecord reworded = winner(1000);
  reworded.toolchain.template_digest = "r1.before";
  const Ladder ladder = climb_for(1000, {reworded});
  EXPECT_EQ(ladder.choices[0].rung, Rung::kExact);
  EXPECT_THAT(ladder.choices[0].why, HasSubstr("timed with another text of the template"));
  reworded.toolchain.template_digest = "r2.before";
  EXPECT_EQ(climb_for(1000, {reworded}).choices[0].rung, Rung::kDefaultConfig);
}

TEST_F(LadderTest, AWinnerThatCannotRunHereSaysWhy) {
  WinnerRecord other_arch = winner(1000), unknown = winner(1000), illegal = winner(1000, 48);
  other_arch.arch = "sm_80";
  unknown.toolchain.template_name = "gone";
  const Ladder ladder = climb_for(1000, {other_arch, unknown, illegal});
  EXPECT_EQ(ladder.choices[0].rung, Rung::kDefaultConfig);
  EXPECT_THAT(ladder.passed_over,
              ElementsAre(HasSubstr("made for sm_80"), HasSubstr("template gone does not serve"),
                          HasSubstr("48")));
}

TEST(ShapeDistance, CountsOctavesOfRowsQueriesAndKeys) {
  const Shape a{2, 1023, 1023, 8, 8}, b{1, 1023, 4095, 15, 15};
  EXPECT_NEAR(shape_distance(a, b), 2.0 + 0.002,
              0.01);  // 17/16 heads x batch counts little, keys two octaves
  EXPECT_EQ(shape_distance(a, a), 0);
}

const std::string kTopLeft = ",mask=causal_top_left", kBottomRight = ",mask=causal_bottom_right";
const std::string kWindow = ",mask=causal_bottom_right,window=2047:-";

// A model may be tuned with one form of a problem, and run with another form.
TEST_F(LadderTest, AWinnerServesEveryFormOfItsProblem) {
  for (const auto& [tuned, asked] :
       {std::pair{kBottomRight, kTopLeft}, std::pair{kTopLeft, kBottomRight},
        std::pair{kWindow, kTopLeft}, std::pair{kBottomRight, kWindow},
        std::pair{std::string(",window=999:999"), std::string()}}) {
    const Ladder ladder = climb_for(masked(1000, asked), {winner_of(masked(1000, tuned), 32)});
    ASSERT_EQ(ladder.choices[0].rung, Rung::kExact) << tuned << " for " << asked;
    EXPECT_EQ(ladder.choices[0].config.at("block"), 32);
    EXPECT_EQ(ladder.choices[0].spec, spec_of(masked(1000, tuned)))
        << "its own kernel, of which there is an image and a timing";
  }
}

TEST_F(LadderTest, AWinnerWhoseKernelHidesKeysIsCompiledForTheRequestedProblem) {
  // At 2000 the window hides nothing, so the row equals the plain mask; at 4000 it hides keys.
  const Ladder ladder =
      climb_for(masked(4000, kBottomRight), {winner_of(masked(2000, kWindow), 32)});
  ASSERT_EQ(ladder.choices[0].rung, Rung::kNearest);
  EXPECT_EQ(ladder.choices[0].spec, spec_of(masked(4000, kBottomRight)));
}

TEST_F(LadderTest, AWindowUsesPlainWinnersOfLengthsAtWhichItHidesNothing) {
  const Ladder ladder =
      climb_for(masked(2060, kWindow), {winner_of(masked(2048, kBottomRight), 32)});
  ASSERT_EQ(ladder.choices[0].rung, Rung::kNearest) << "at 2048 keys both are one problem";
  EXPECT_EQ(ladder.choices[0].spec, spec_of(masked(2060, kWindow)));
}

TEST_F(LadderTest, WinnersOfOtherProblemsAreNotTaken) {
  for (const auto& [tuned, asked] :
       {std::pair{std::string(), kBottomRight}, std::pair{kBottomRight, std::string()},
        std::pair{kBottomRight, kBottomRight + ",window=500:-"}})
    EXPECT_EQ(climb_for(masked(1000, asked), {winner_of(masked(1000, tuned))}).choices[0].rung,
              Rung::kDefaultConfig)
        << tuned << " for " << asked;
}

TEST_F(LadderTest, WithoutACompilerTheRequestedFormComesAfterTheCanonicalOne) {
  const Ladder ladder = climb_for(masked(1000, kWindow), {}, Policy::kDefault, Compiling::kNever);
  ASSERT_THAT(rungs(ladder),
              ElementsAre(Rung::kDefaultConfig, Rung::kDefaultConfig, Rung::kReference));
  EXPECT_EQ(ladder.choices[0].spec, spec_of(masked(1000, kBottomRight)));
  EXPECT_EQ(ladder.choices[1].spec, spec_of(masked(1000, kWindow)));
}

TEST_F(LadderTest, WinnersOfTheNearestThreadCountComeAfterThisOnes) {
  const std::vector<WinnerRecord> winners{with_threads(winner(1000, 32), 64),
                                          with_threads(winner(1000, 128), 2)};
  const Ladder ladder = climb_for(1000, winners);
  EXPECT_THAT(rungs(ladder),
              ElementsAre(Rung::kNearest, Rung::kNearest, Rung::kDefaultConfig, Rung::kReference));
  EXPECT_EQ(ladder.choices[0].config.at("block"), 128);
  EXPECT_EQ(ladder.choices[0].why, "tuned for 2 threads, this is 4: this shape");
  const Ladder strict = climb_for(1000, winners, Policy::kStrict);
  EXPECT_TRUE(strict.choices.empty());
  EXPECT_THAT(strict.passed_over,
              ::testing::Contains(
                  "tuned for 2 threads, this is 4: this shape, which policy nearest takes"));

  std::vector<WinnerRecord> with_own = winners;
  with_own.push_back(with_threads(winner(900, 64), 4));
  EXPECT_EQ(climb_for(1000, with_own).choices[0].rung, Rung::kBucket) << "of this thread count";
  const WinnerRecord near = with_threads(winner(2000), 2);
  EXPECT_THAT(climb_for(1000, {near}).choices[0].why,
              HasSubstr("tuned for 2 threads, this is 4: nearest tuned shape is"));
}

TEST_F(LadderTest, TimesOfOtherThreadCountsAreNotExpected) {
  EXPECT_TRUE(measured_on(with_threads(winner(1000), 4), device_));
  EXPECT_FALSE(measured_on(with_threads(winner(1000), 2), device_));
}

TEST_F(LadderTest, ManyWinnersNotTakenAreCounted) {
  std::vector<WinnerRecord> stale;
  for (int i = 0; i < 100; ++i) {
    stale.push_back(winner(1000 + i));
    stale.back().toolchain.template_digest = "older";
  }
  const Ladder ladder = climb_for(1000, stale);
  EXPECT_EQ(ladder.passed_over.size(), 17u);
  EXPECT_EQ(ladder.passed_over.back(), "84 more winners, for reasons like these");
}

// A negative extent gives a distance of NaN, which must not count as near.
TEST_F(LadderTest, AShapeWithoutADistanceIsNotNear) {
  WinnerRecord odd = winner(2000);
  odd.shape.batch = -8;
  EXPECT_EQ(climb_for(1000, {odd}).choices[0].rung, Rung::kDefaultConfig);
}

}  // namespace
}  // namespace attune
