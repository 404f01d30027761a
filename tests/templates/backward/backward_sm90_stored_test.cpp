// SPDX-License-Identifier: Apache-2.0
// backward_sm90_stored, whose kernels keep scores in the workspace, without a device: places
// of scores, heads per round, served shapes. backward_test.cpp checks results.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "generator/core/problem/visibility.hpp"
#include "templates/shared/layouts/backward_stored_layout.h"
#include "tests/templates/backward/backward_sm90_cases.hpp"

namespace attune {
namespace {

using testing::chosen_for;
using testing::hopper;
using testing::kH200;
using testing::kStored;
using testing::refusal_by;

LaunchPlan plan_of(const Problem& p, Config config = parse_config(kStored)) {
  return backward_sm90_stored().launch(spec_of(p), config, shape_of(p), kH200);
}

TEST(StoredScores, ARowKeepsEveryKeyOnceAndPairsTogether) {
  std::set<int> keys;
  for (int place = 0; place < 64; ++place) {
    const int key = backward_stored_key(place);
    EXPECT_EQ(key / kStoredKeys, place / kStoredKeys);  // in its panel
    if (place % 2 == 1) {
      EXPECT_EQ(key, backward_stored_key(place - 1) + 1);
    }
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 64u);
  // A thread's two pairs of 16 keys, in accumulators of wgmma: columns 2 q, 2 q + 1 and 8 further
  // on.
  for (int q = 0; q < 4; ++q) {
    EXPECT_EQ(backward_stored_key(4 * q), 2 * q);
    EXPECT_EQ(backward_stored_key(4 * q + 2), 2 * q + 8);
  }
}

// For every mask no two places overlap, including the places that steps of up to 128 keys write
// around the visible keys. All places are within the planned workspace.
TEST(StoredScores, PlacesOfAHeadDoNotOverlapAndFitTheWorkspace) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"})
    for (const char* window : {"-:-", "70:-", "-:30", "300:20", "0:0"})
      for (const char* lengths :
           {"seqlen=1", "seqlen=2000", "seqlen_q=700,seqlen_kv=65", "seqlen_q=65,seqlen_kv=3000"}) {
        const Problem p =
            parse_problem(std::string("op=attention_backward,head_dim=256,heads=2,mask=") + mask +
                          ",window=" + window + "," + lengths);
        const LaunchPlan plan = plan_of(p);
        const int stride = plan.round_sizes.stride;
        EXPECT_EQ(plan.workspace[1].rows, stride);
        std::map<std::pair<int, int>, int64_t> taken;  // line and place: by which rows
        for (int64_t row = 0; row < p.seqlen_q; row += 64) {
          const auto keys = keys_of_rows(p, p, row, std::min<int64_t>(row + 64, p.seqlen_q) - 1);
          if (keys.last < keys.first) continue;
          const int begin = static_cast<int>(keys.first / 64);
          const int end = static_cast<int>(keys.last / 64) + 1;
          const StoredLine at =
              backward_stored_line(p.seqlen_q, static_cast<int>(row / 64), begin, end, stride);
          ASSERT_LT(at.line, plan.workspace[1].heads);
          for (const int step : {32, 48, 80, 112, 128}) {
            const int first = static_cast<int>(keys.first) / step * step;
            const int last = static_cast<int>(keys.last) / step * step + step - 1;
            for (int block = first / 64; block <= last / 64; ++block) {
              const int place = at.first + block;
              ASSERT_GE(place, 0) << to_text(p);
              ASSERT_LT(place, stride) << to_text(p);
              const auto [there, is_new] = taken.insert({{at.line, place}, row});
              ASSERT_EQ(there->second, row) << to_text(p) << " rows " << row;
            }
          }
        }
      }
}

// A causal mask needs half of the places, since a line holds two blocks of rows.
TEST(StoredScores, TakeRoomOnlyForWhatACausalMaskShows) {
  const auto bytes = [](const std::string& more) {
    const Problem p =
        parse_problem("op=attention_backward,head_dim=256,heads=1,seqlen=8192," + more);
    const LaunchPlan plan = plan_of(p);
    return plan.workspace[1].count() * 2;
  };
  const int64_t all = 8192LL * 8192 * 4;
  EXPECT_NEAR(static_cast<double>(bytes("mask=none")) / all, 1, 0.04);
  EXPECT_NEAR(static_cast<double>(bytes("mask=causal_bottom_right")) / all, 0.5, 0.04);
  EXPECT_NEAR(static_cast<double>(bytes("mask=none,gradients=qk")) / all, 0.5, 0.02);
  EXPECT_LT(static_cast<double>(bytes("mask=causal_bottom_right,window=127:0")) / all, 0.06);
}

TEST(StoredScores, KernelsAreLaunchedForSomeHeadsAtATime) {
  const Problem p = parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=256,heads=12/6,batch=3,seqlen=4096,mask=none");
  const LaunchPlan plan = plan_of(p);
  ASSERT_EQ(plan.steps.size(), 4u);
  EXPECT_EQ(plan.rounds.begin, 1u);
  EXPECT_EQ(plan.rounds.end, 4u);
  EXPECT_EQ(plan.round_sizes.heads, 18);
  EXPECT_EQ(plan.round_sizes.of_round, 9);  // 128 MiB per head; at most 1280
  EXPECT_EQ(plan.workspace[1].batch, 2 * 9);
  EXPECT_LE(plan.workspace[1].count() * 2, kMostStoredBytes);
  EXPECT_EQ(plan.steps[1].num_tiles, 2 * 9 * 32);
  EXPECT_EQ(plan.steps[2].entry, "attune_keys");
  EXPECT_EQ(plan.steps[2].num_tiles, 9 * 32);
  EXPECT_EQ(plan.steps[2].grid_x, 9u * 32);
  EXPECT_EQ(plan.steps[3].entry, "attune_values");
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(plan.steps[i].parts[1], ArgumentPart::kRound);
  // Without dV there is no P, and no kernel of it.
  const Problem no_v = parse_problem(to_text(p) + ",gradients=qk");
  const LaunchPlan less = plan_of(no_v);
  EXPECT_EQ(less.rounds.end, less.steps.size());
  EXPECT_EQ(less.steps.size(), 3u);
  EXPECT_EQ(less.round_sizes.of_round, 18);
}

// If one head needs more than a round may hold, stored scores are neither the default nor the
// winner of another shape. Kernels that recompute scores are chosen instead.
TEST(StoredScores, AreChosenOnlyForShapesWhoseHeadsFit) {
  const auto at = [](const char* seqlen) {
    return parse_problem(std::string("op=attention_backward,dtype=bf16,head_dim=256,heads=8,"
                                     "mask=none,seqlen=") +
                         seqlen);
  };
  const auto unfit = [](const Problem& p, const Config& config) {
    return backward_sm90_stored().unfit(spec_of(p), config, shape_of(p)).value_or("");
  };
  const Config stored = parse_config(kStored);
  EXPECT_EQ(chosen_for(at("16384")).name, "backward_sm90_stored");
  EXPECT_EQ(unfit(at("16384"), stored), "");
  EXPECT_EQ(chosen_for(at("32768")).name, "backward_sm90");
  EXPECT_NE(unfit(at("32768"), stored).find("must be at most 1342177280"), std::string::npos);
  EXPECT_EQ(backward_sm90_stored().fit(spec_of(at("32768")), shape_of(at("32768"))), Fit::kNever);
  // An explicit request still gets it, one head at a time.
  EXPECT_EQ(plan_of(at("32768")).round_sizes.of_round, 1);
}

TEST(StoredScores, SentencesNameTheRule) {
  const std::string p = "op=attention_backward,head_dim=256,heads=8,seqlen=4096";
  const SearchSpace space = backward_sm90_stored().space(spec_of(parse_problem(p)), hopper());
  EXPECT_EQ(space.broken(parse_config(kStored)), std::nullopt);
  Config wide = parse_config(kStored);
  wide.set("block_n", 128);
  EXPECT_NE(space.broken(wide).value_or("").find("registers"), std::string::npos);
  // Stored scores need gradients of q and k, and cannot be accumulated.
  EXPECT_EQ(refusal_by(backward_sm90_stored(), p + ",gradients=qk"), "");
  EXPECT_EQ(refusal_by(backward_sm90_stored(), p + ",gradients=kv"),
            "gradients are kv; this template serves qk and qkv");
  EXPECT_NE(refusal_by(backward_sm90_stored(), p + ",gradients=qv"), "");
  EXPECT_NE(refusal_by(backward_sm90_stored(), p + ",accumulate=1").find("accumulate"),
            std::string::npos);
}

class StoredScoresCompile : public testing::HopperCompile {};

TEST_F(StoredScoresCompile, ConfigsThatTunersFindDoNotSpill) {
  for (const auto& [dims, tiles] :
       {std::pair{"head_dim=256", "block_m=128,block_n=48,k_slots=3,v_slots=1,key_block_n=128"},
        {"head_dim=256", "block_m=128,block_n=32,k_slots=3,v_slots=2,key_block_n=128"},
        {"head_dim=256", "block_m=64,block_n=64,k_slots=3,v_slots=2,key_block_n=128"},
        {"head_dim=192", "block_m=128,block_n=64,k_slots=3,v_slots=2,key_block_n=192"},
        {"head_dim_qk=192,head_dim_v=128",
         "block_m=128,block_n=64,k_slots=3,v_slots=2,key_block_n=128"}})
    for (const char* rest : {"mask=none", "mask=causal_bottom_right,dropout=0.1",
                             "mask=none,window=100:70,gradients=qk"}) {
      const KernelSpec spec = spec_of(
          parse_problem(std::string("op=attention_backward,dtype=bf16,heads=8/2,seqlen=512,") +
                        dims + "," + rest));
      Config config = parse_config(kStored);
      const Config other = parse_config(tiles);
      for (const auto& [knob, value] : other.knobs()) config.set(knob, value);
      config.set("q_slots", 3);
      ASSERT_EQ(backward_sm90_stored().space(spec, hopper()).broken(config), std::nullopt);
      EXPECT_EQ(testing::compile_fault(*compiler_, backward_sm90_stored(), spec, hopper(), config),
                "")
          << config.to_text();
    }
}

}  // namespace
}  // namespace attune
