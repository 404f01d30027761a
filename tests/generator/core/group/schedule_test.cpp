// SPDX-License-Identifier: Apache-2.0
// Layouts and schedules of groups: drawn problems on 1 to 16 ranks are computed exactly once, with
// the bytes of the formula and without waits in a circle; and what is refused.
#include "generator/core/group/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "generator/core/system/error.hpp"
#include "tests/generator/core/group/checked_schedule.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

WholeProblem whole_of(const std::string& text, std::vector<int64_t> documents = {}) {
  return {parse_problem("dtype=bf16,head_dim=64," + text), std::move(documents)};
}

int64_t draw(int64_t first, int64_t end) { return *rc::gen::inRange<int64_t>(first, end); }

WholeProblem drawn_problem() {
  WholeProblem whole;
  Problem& p = whole.problem;
  p.seqlen_q = p.seqlen_kv = draw(1, 1400);
  p.num_heads_kv = static_cast<int>(draw(1, 5));
  p.num_heads_q = p.num_heads_kv * static_cast<int>(draw(1, 5));
  p.batch = draw(1, 4);
  p.head_dim_qk = 64;
  p.head_dim_v = 32;
  p.mask = *rc::gen::element(Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight);
  if (draw(0, 2) == 1) p.window_left = draw(0, 400);
  if (p.mask == Mask::kNone && draw(0, 2) == 1) p.window_right = draw(0, 400);
  if (draw(0, 2) == 1) {
    whole.documents = {0};
    while (whole.documents.back() < p.seqlen_q)
      whole.documents.push_back(std::min(p.seqlen_q, whole.documents.back() + draw(0, 500)));
  }
  return whole;
}

Layout drawn_layout(const WholeProblem& whole, int world) {
  const auto kind = *rc::gen::element(LayoutKind::kContiguous, LayoutKind::kZigzag,
                                      LayoutKind::kBalanced, LayoutKind::kInterleaved);
  return make_layout(kind, whole, world, draw(1, 200));
}

int64_t held_tokens(const std::vector<Range>& ranges) {
  int64_t tokens = 0;
  for (const Range range : ranges) tokens += range.size();
  return tokens;
}

// The bytes that a rank receives, without a schedule.
int64_t formula(const WholeProblem& whole, const Layout& layout, Algorithm algorithm, Pass pass,
                size_t rank) {
  const Problem& p = whole.problem;
  const int64_t world = static_cast<int64_t>(layout.size()), mine = held_tokens(layout[rank]);
  const int64_t kv = p.batch * (p.head_dim_qk + p.head_dim_v), others = p.seqlen_q - mine;
  if (algorithm == Algorithm::kExchange) {
    const bool repeats = p.num_heads_kv < world;
    const int64_t heads = p.num_heads_q / world, of_kv = repeats ? 1 : p.num_heads_kv / world;
    if (pass == Pass::kForward)
      return 2 * (others * (heads * p.head_dim_qk * p.batch + of_kv * kv) +
                  mine * (p.num_heads_q - heads) * p.head_dim_v * p.batch);
    const int64_t sums = repeats ? 4 * (world - 1) : 2 * (p.num_heads_kv - of_kv);
    return 2 * others * heads * p.head_dim_v * p.batch +
           mine * (2 * (p.num_heads_q - heads) * p.head_dim_qk * p.batch + sums * kv);
  }
  if (algorithm == Algorithm::kRing) {
    const int64_t around = pass == Pass::kForward ? 0 : 4 * p.num_heads_kv * kv * p.seqlen_q;
    return 2 * p.num_heads_kv * kv * others + (world > 1 ? around : 0);
  }
  std::vector<std::vector<bool>> seen(layout.size());
  std::vector<size_t> owner(static_cast<size_t>(p.seqlen_q));
  for (size_t one = 0; one < layout.size(); ++one) {
    seen[one].resize(owner.size());
    for (const Range tokens : layout[one])
      for (int64_t row = tokens.first; row < tokens.end; ++row) {
        owner[static_cast<size_t>(row)] = one;
        const Range keys = keys_of_row(whole, row);
        std::fill(seen[one].begin() + keys.first, seen[one].begin() + keys.end, true);
      }
  }
  int64_t bytes = 0;
  for (size_t key = 0; key < owner.size(); ++key) {
    if (owner[key] != rank && seen[rank][key]) bytes += 2 * p.num_heads_kv * kv;
    for (size_t one = 0; one < layout.size() && pass == Pass::kBackward; ++one)
      if (owner[key] == rank && one != rank && seen[one][key]) bytes += 4 * p.num_heads_kv * kv;
  }
  return bytes;
}

void check(const WholeProblem& whole, const Layout& layout, Algorithm algorithm) {
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    GroupCheck group(whole, layout, algorithm, pass);
    const std::string mistake = group.mistake();
    if (!mistake.empty())
      RC_FAIL(fmt::format("{} of {}: {}", algorithm_name(algorithm), to_text(layout), mistake));
    for (size_t rank = 0; rank < layout.size(); ++rank)
      RC_ASSERT(received_bytes(group.schedules()[rank], static_cast<int>(rank)) ==
                formula(whole, layout, algorithm, pass, rank));
  }
}

TEST(Schedule, ComputesEachPairOnceWithTheBytesOfTheFormula) {
  EXPECT_TRUE(rc::check([] {
    const WholeProblem whole = drawn_problem();
    const int world = static_cast<int>(draw(1, 17));
    const Layout layout = drawn_layout(whole, world);
    check(whole, layout, Algorithm::kGather);
    if (draw(0, 4) == 0) check(whole, layout, Algorithm::kRing);
  }));
}

TEST(Schedule, ExchangesHeadsOnEveryNumberOfRanks) {
  EXPECT_TRUE(rc::check([] {
    WholeProblem whole = drawn_problem();
    const int world = static_cast<int>(draw(1, 17));
    const bool repeats = draw(0, 2) == 1 && world % 2 == 0;
    whole.problem.num_heads_kv = repeats ? world / 2 : world;
    whole.problem.num_heads_q = world * static_cast<int>(draw(1, 3));
    whole.problem.seqlen_q = whole.problem.seqlen_kv = draw(1, 600);
    if (!whole.documents.empty())
      whole.documents = {0, whole.problem.seqlen_q / 3, whole.problem.seqlen_q};
    check(whole, drawn_layout(whole, world), Algorithm::kExchange);
  }));
}

TEST(Schedule, CheckFindsEachStepThatIsLost) {
  const WholeProblem whole = whole_of("heads=4/2,seqlen=700,mask=causal_bottom_right");
  const Layout layout = parse_layout("zigzag", whole, 2);
  for (const Algorithm algorithm : {Algorithm::kGather, Algorithm::kExchange, Algorithm::kRing})
    for (size_t step = 0; step < 3; ++step) {
      GroupCheck group(whole, layout, algorithm, Pass::kForward);
      ASSERT_EQ(group.mistake(), "");
      Schedule& mine = group.schedules()[1];
      ASSERT_LT(step, mine.size());
      mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(step));
      EXPECT_NE(group.mistake(), "") << algorithm_name(algorithm) << " without step " << step;
    }
  GroupCheck crossed(whole, layout, Algorithm::kRing, Pass::kBackward);
  for (Step& step : crossed.schedules()[0])
    if (step.round == 0) step.round = 1;
  EXPECT_NE(crossed.mistake(), "");
}

TEST(Schedule, BytesOfEqualShardsWithoutAMask) {
  const WholeProblem whole = whole_of("heads=32/8,seqlen=4096");
  for (const int world : {2, 4, 8}) {
    const Layout layout = parse_layout("contiguous", whole, world);
    const auto bytes = [&](Algorithm algorithm, Pass pass) {
      return received_bytes(make_schedule(whole, layout, algorithm, pass, 1), 1);
    };
    const int64_t gathered = (world - 1) * 4096 / world * 4 * 8 * 64;
    EXPECT_EQ(bytes(Algorithm::kGather, Pass::kForward), gathered);
    EXPECT_EQ(bytes(Algorithm::kGather, Pass::kBackward), 3 * gathered);
    EXPECT_EQ(bytes(Algorithm::kRing, Pass::kForward), gathered);
    EXPECT_EQ(bytes(Algorithm::kExchange, Pass::kForward), gathered * (32 / 8 + 1) / world);
    EXPECT_EQ(bytes(Algorithm::kExchange, Pass::kBackward), gathered * (32 / 8 + 1) / world);
  }
}

TEST(Schedule, ChoosesByBytes) {
  const auto chosen = [](const std::string& heads, int world, bool training) {
    const WholeProblem whole = whole_of("seqlen=4096,heads=" + heads);
    return choose_algorithm(whole, parse_layout("contiguous", whole, world), training);
  };
  EXPECT_EQ(chosen("32/8", 4, false), Algorithm::kGather);   // 5/4 of the gather
  EXPECT_EQ(chosen("32/8", 4, true), Algorithm::kExchange);  // 2 * 5/4 against 4
  EXPECT_EQ(chosen("32/8", 8, false), Algorithm::kExchange);
  EXPECT_EQ(chosen("32/32", 4, false), Algorithm::kExchange);
  EXPECT_EQ(chosen("32/8", 3, true), Algorithm::kGather);  // heads cannot be dealt
}

// Returns the launches of all ranks, by their first rows and keys.
std::vector<Step> launches_of_all(const WholeProblem& whole, const Layout& layout, Pass pass) {
  std::vector<Step> launches;
  for (int rank = 0; rank < static_cast<int>(layout.size()); ++rank)
    for (Step step : make_schedule(whole, layout, Algorithm::kGather, pass, rank))
      if (step.kind == StepKind::kLaunch) {
        step.round = 0;
        launches.push_back(step);
      }
  std::sort(launches.begin(), launches.end(), [](const Step& a, const Step& b) {
    return std::pair(a.tokens.first, a.keys.first) < std::pair(b.tokens.first, b.keys.first);
  });
  return launches;
}

TEST(Schedule, LaunchesDoNotDependOnTheNumberOfRanksIfAsked) {
  rc::check([] {
    WholeProblem whole = drawn_problem();
    whole.world_invariant = true;
    whole.problem.seqlen_q = whole.problem.seqlen_kv *= 4;
    if (!whole.documents.empty()) whole.documents.back() = whole.problem.seqlen_q;
    const std::vector<Step> wanted =
        launches_of_all(whole, make_layout(LayoutKind::kContiguous, whole, 1, 0), Pass::kForward);
    for (const int world : {2, 4, 8, 16})
      for (const LayoutKind kind : {LayoutKind::kContiguous, LayoutKind::kZigzag}) {
        const Layout layout = make_layout(kind, whole, world, 0);
        if (world == 16 && kind == LayoutKind::kZigzag) continue;
        check_algorithm(whole, layout, Algorithm::kGather);
        for (const Pass pass : {Pass::kForward, Pass::kBackward})
          RC_ASSERT(launches_of_all(whole, layout, pass) == wanted);
      }
  });
}

TEST(Schedule, RefusesToBeInvariantByName) {
  WholeProblem whole = whole_of("heads=4,seqlen=9000");
  whole.world_invariant = true;
  const auto refused = [&](LayoutKind kind, int world, Algorithm algorithm) -> std::string {
    try {
      check_algorithm(whole, make_layout(kind, whole, world, 0), algorithm);
    } catch (const Error& error) {
      return error.what();
    }
    return "served";
  };
  EXPECT_EQ(refused(LayoutKind::kContiguous, 8, Algorithm::kGather), "served");
  EXPECT_THAT(refused(LayoutKind::kContiguous, 3, Algorithm::kGather),
              HasSubstr("layout has a border at token 3072; must be at borders of 16"));
  EXPECT_THAT(refused(LayoutKind::kContiguous, 2, Algorithm::kExchange),
              HasSubstr("world_invariant is asked with algorithm exchange"));
}

TEST(Layout, HoldsEachTokenOnce) {
  EXPECT_TRUE(rc::check([] {
    const WholeProblem whole = drawn_problem();
    const int world = static_cast<int>(draw(1, 17));
    const Layout layout = drawn_layout(whole, world);
    RC_ASSERT(to_text(parse_layout(to_text(layout), whole, world)) == to_text(layout));
  }));
}

double imbalance(const WholeProblem& whole, const Layout& layout) {
  int64_t most = 0, all = 0;
  for (const std::vector<Range>& rank : layout) {
    int64_t pairs = 0;
    for (const Area& area : areas_of(whole, rank)) pairs += visible_pairs(area);
    most = std::max(most, pairs);
    all += pairs;
  }
  return static_cast<double>(most) * static_cast<double>(layout.size()) / static_cast<double>(all);
}

TEST(Layout, BalancesTheWork) {
  const WholeProblem causal = whole_of("heads=1,seqlen=16384,mask=causal_bottom_right");
  EXPECT_LT(imbalance(causal, parse_layout("auto", causal, 4)), 1.001);
  EXPECT_GT(imbalance(causal, parse_layout("contiguous", causal, 4)), 1.5);
  const WholeProblem documents =
      whole_of("heads=1,seqlen=16384,mask=causal_bottom_right", {0, 100, 9000, 9500, 12000, 16384});
  const Layout layout = parse_layout("auto", documents, 4);
  EXPECT_LT(imbalance(documents, layout), 1.03);
  EXPECT_GT(imbalance(documents, parse_layout("zigzag", documents, 4)), 1.2);
  for (const std::vector<Range>& rank : layout) EXPECT_EQ(held_tokens(rank), 16384 / 4);
}

TEST(Layout, BordersAreAtTheGrainAndRanksMayBeEmpty) {
  const WholeProblem whole = whole_of("heads=1,seqlen=300,mask=causal_bottom_right");
  EXPECT_EQ(to_text(parse_layout("contiguous", whole, 2)), "0-256/256-300");
  EXPECT_EQ(to_text(parse_layout("contiguous", whole, 5)), "0-128//128-256//256-300");
  EXPECT_EQ(to_text(parse_layout("interleaved:100", whole, 2)), "0-100+200-300/100-200");
}

std::string refusal(const std::string& problem, const std::string& request) {
  try {
    schedule_text(parse_problem("dtype=bf16,head_dim=64," + problem), request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Schedule, RefusesByName) {
  const std::string usual = "heads=4/2,seqlen=512";
  EXPECT_EQ(refusal(usual, "world=2,rank=1"), "");
  EXPECT_THAT(refusal(usual, "world=0,rank=0"), HasSubstr("world is \"0\"; must be 1 to 4096"));
  EXPECT_THAT(refusal(usual, "world=2,rank=2"), HasSubstr("rank is \"2\"; must be 0 to 1"));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,size=3"), HasSubstr("group key is \"size\""));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,layout=round"), HasSubstr("layout has \"round\""));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,layout=0-512"), HasSubstr("layout has 1 ranks"));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,layout=0-300/200-512"),
              HasSubstr("two ranks at token 200"));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,layout=0-200/300-512"),
              HasSubstr("no rank at token 200"));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,layout=0-200/200-400"),
              HasSubstr("ends at token 400"));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,layout=200-100/100-512"), HasSubstr("must rise"));
  EXPECT_THAT(refusal(usual, "world=3,rank=0,algorithm=exchange"),
              HasSubstr("exchange with 4/2 heads on 3 ranks"));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,algorithm=star"), HasSubstr("algorithm is \"star\""));
  EXPECT_THAT(refusal(usual, "world=2,rank=0,documents=0:5"), HasSubstr("must rise from 0 to 512"));
  EXPECT_THAT(refusal("heads=1,seqlen_q=5,seqlen_kv=7", "world=2,rank=0"),
              HasSubstr("seqlen_q is 5 and seqlen_kv is 7"));
  EXPECT_THAT(refusal("op=quantise,heads=1,seqlen=5,dtype_o=e4m3", "world=2,rank=0"),
              HasSubstr("op attention, not quantise"));
}

}  // namespace
}  // namespace attune
