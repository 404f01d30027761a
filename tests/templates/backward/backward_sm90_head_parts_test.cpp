// SPDX-License-Identifier: Apache-2.0
// Parts of a group's heads of Q (split_heads) without a device: which tile has which heads, the
// place of its sums, the number of parts, and the launch. backward_test.cpp checks results.
#include "generator/families/backward/sm90/head_parts.hpp"

#include <gtest/gtest.h>

#include <set>

#include "templates/shared/layouts/backward_head_parts.h"
#include "tests/templates/backward/backward_sm90_cases.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::chosen_for;
using testing::default_of;
using testing::expect_workspace;
using testing::hopper;
using testing::kH200;
using testing::kOneKernel;

Problem gradients(const std::string& text) {
  return parse_problem("op=attention_backward,dtype=bf16," + text);
}

Config with(Config config, int split_heads) {
  config.set("split_heads", split_heads);
  return config;
}

// Returns the launch of a default config of two kernels, or of one kernel, with parts.
LaunchPlan split_launch(const KernelTemplate& family, const Problem& p) {
  const Config config = with(family.default_config(spec_of(p), hopper(), shape_of(p), kH200), 1);
  EXPECT_EQ(family.space(spec_of(p), hopper()).broken(config), std::nullopt) << config.to_text();
  return family.launch(spec_of(p), config, shape_of(p), kH200);
}

TEST(HeadParts, CoverEachHeadOnceWithSizesThatDifferByOne) {
  for (const int ratio : {2, 4, 7, 8, 32, 71, 128})
    for (int parts = 1; parts <= ratio; ++parts) {
      EXPECT_EQ(backward_part_begin(ratio, parts, 0), 0);
      EXPECT_EQ(backward_part_begin(ratio, parts, parts), ratio);
      for (int part = 0; part < parts; ++part) {
        const int heads =
            backward_part_begin(ratio, parts, part + 1) - backward_part_begin(ratio, parts, part);
        EXPECT_GE(heads, ratio / parts) << ratio << " " << parts;
        EXPECT_LE(heads, (ratio + parts - 1) / parts) << ratio << " " << parts;
      }
    }
}

// Applies the arithmetic of keys_tiles.cuh and head_parts.cuh to all tiles of a launch.
TEST(HeadParts, TilesTakeEachBlockOfKeysOfEachHeadOnceAndHaveSumsOfTheirOwn) {
  constexpr int kKeys = 128, kColumns = 128;
  for (const int ratio : {2, 4, 7, 32, 71})
    for (const int parts : {1, 2, 3, ratio})
      for (const int seqlen_kv : {1, 128, 300}) {
        const int heads_kv = 3, batch = 2, blocks = (seqlen_kv + kKeys - 1) / kKeys;
        if (parts > ratio) continue;
        const int num_tiles = blocks * heads_kv * parts * batch;
        ASSERT_EQ(backward_head_parts(num_tiles, blocks, heads_kv, batch), parts);
        std::set<std::tuple<int, int, int>> taken;  // batch entry, head of Q, block
        std::set<long long> sums;
        for (int number = 0; number < num_tiles; ++number) {
          const int block = number % blocks, entry = number / blocks / (heads_kv * parts);
          const int place = number / blocks % (heads_kv * parts);
          const int head = place / parts, part = place % parts;
          for (int i = backward_part_begin(ratio, parts, part);
               i < backward_part_begin(ratio, parts, part + 1); ++i)
            EXPECT_TRUE(taken.insert({entry, head * ratio + i, block}).second);
          const int slice = entry * heads_kv * parts + place;
          // attune_join finds the same slice.
          EXPECT_EQ(slice, (entry * heads_kv + head) * parts + part);
          for (int half = 0; half < kKeys / kWarpgroupRows; ++half)
            EXPECT_TRUE(sums.insert(backward_slice_place(slice, 2 * block + half, seqlen_kv, kKeys,
                                                         kColumns))
                            .second);
        }
        EXPECT_EQ(taken.size(), static_cast<size_t>(batch * heads_kv * ratio * blocks));
        // The places follow each other without a gap.
        EXPECT_EQ(*sums.begin(), 0);
        EXPECT_EQ(*sums.rbegin() + backward_slice_floats(kColumns),
                  static_cast<long long>(sums.size()) * backward_slice_floats(kColumns));
      }
}

// Each block of attune_join has some groups of eight columns; together they have all.
TEST(HeadParts, BlocksOfTheLastStepHaveAllColumns) {
  for (int columns = 8; columns <= 512; columns += 8) {
    EXPECT_GE(backward_join_blocks(columns) * kJoinGroups * 8, columns);
    EXPECT_LT((backward_join_blocks(columns) - 1) * kJoinGroups * 8, columns);
  }
}

TEST(HeadParts, LaunchHasTheSumsOfAllPartsAfterTheRestOfTheWorkspace) {
  for (const char* text :
       {"head_dim=128,heads=32/1,batch=4,seqlen=4096,mask=causal_bottom_right",
        "head_dim=64,heads=71/1,batch=2,seqlen=300", "head_dim=256,heads=14/2,batch=1,seqlen=1000",
        "head_dim_qk=192,head_dim_v=128,heads=7/1,seqlen=1000,gradients=kv"})
    for (const KernelTemplate* family : {&backward_sm90(), &backward_sm90_one_kernel()}) {
      const Problem p = gradients(text);
      if (family->refuses(spec_of(p), hopper())) continue;
      const LaunchPlan plan = split_launch(*family, p);
      expect_workspace(plan);
      const LaunchStep& join = plan.steps.back();
      const PlacedTensor& slices = plan.workspace.back();
      ASSERT_EQ(join.entry, "attune_join");
      ASSERT_EQ(slices.name, "slices");
      const int64_t parts = slices.heads / p.num_heads_kv;
      EXPECT_GT(parts, 1) << text;
      EXPECT_LE(parts, spec_of(p).gqa_ratio) << text;
      EXPECT_EQ(slices.heads % p.num_heads_kv, 0) << text;
      EXPECT_EQ(slices.columns, 64 * keys_columns(spec_of(p)));
      EXPECT_EQ(join.grid_x, p.num_heads_kv * p.batch * ((p.seqlen_kv + 63) / 64));
      // All kernels of keys, and the last step, have the same tiles, hence the same parts.
      const LaunchStep& keys = plan.steps[plan.steps.size() - (family == &backward_sm90() ? 2 : 3)];
      EXPECT_EQ(keys.num_tiles, join.num_tiles) << text;
      EXPECT_EQ(join.num_tiles % (parts * p.num_heads_kv * p.batch), 0) << text;
    }
}

// The kernel's formula of the place of the sums: after counters of blocks of rows and of tiles.
TEST(HeadParts, SumsOfOneKernelFollowItsCounters) {
  const Problem p = gradients("heads=6/2,batch=3,seqlen=1000,head_dim=128");
  const LaunchPlan plan = backward_sm90_one_kernel().launch(
      spec_of(p), with(parse_config(kOneKernel), 1), shape_of(p), kH200);
  ASSERT_EQ(plan.workspace.size(), 4u);
  EXPECT_EQ(plan.workspace[3].offset,
            (plan.workspace[2].offset + 4 * plan.workspace[2].count() + 255) / 256 * 256);
}

TEST(HeadParts, OnlyGroupsOfHeadsHaveTheKnob) {
  const auto has = [](const KernelTemplate& family, const std::string& text) {
    const Problem p = gradients("head_dim=128,seqlen=1000," + text);
    return family.default_config(spec_of(p), hopper(), shape_of(p), kH200).has("split_heads");
  };
  EXPECT_TRUE(has(backward_sm90(), "heads=4/2"));
  EXPECT_TRUE(has(backward_sm90_one_kernel(), "heads=4/2"));
  EXPECT_TRUE(has(backward_sm90(), "heads=4/2,gradients=k"));
  EXPECT_FALSE(has(backward_sm90(), "heads=4/2,gradients=q"));
  EXPECT_FALSE(has(backward_sm90(), "heads=4"));
  EXPECT_FALSE(has(backward_sm90_one_kernel(), "heads=4"));
  EXPECT_FALSE(has(backward_sm90_stored(), "heads=4/2"));
}

// Kernels without parts have neither the text nor the step.
TEST(HeadParts, WholeGroupsHaveNoTextOfParts) {
  const Problem p = gradients("head_dim=128,heads=32/1,seqlen=1000");
  for (const KernelTemplate* family : {&backward_sm90(), &backward_sm90_one_kernel()}) {
    const Config chosen = family->default_config(spec_of(p), hopper(), shape_of(p), kH200);
    for (const int split : {0, 1}) {
      const std::string text = render(*family, spec_of(p), hopper(), with(chosen, split)).text;
      EXPECT_EQ(text.find("attune_join(") != std::string::npos, split == 1);
      EXPECT_EQ(text.find("kSplitsHeads = true") != std::string::npos, split == 1);
    }
  }
}

int parts_of(const std::string& text) {
  const Problem p = gradients(text);
  const LaunchPlan plan = split_launch(backward_sm90(), p);
  return static_cast<int>(plan.workspace.back().heads / p.num_heads_kv);
}

// Parts fill the multiprocessors, and shorten the longest tile under a mask.
TEST(HeadParts, NumberFollowsTheTiles) {
  EXPECT_EQ(parts_of("head_dim=128,heads=32/1,batch=1,seqlen=128"), 32);  // one block of keys
  EXPECT_GE(parts_of("head_dim=128,heads=32/1,batch=4,seqlen=4096,mask=causal_bottom_right"), 3);
  EXPECT_EQ(parts_of("head_dim=128,heads=4/2,batch=1,seqlen=512"), 2);  // the ratio
  // 132 equal tiles are one wave; twice as many shorter ones take as long.
  EXPECT_EQ(parts_of("head_dim=128,heads=132/66,batch=1,seqlen=256"), 1);
  EXPECT_EQ(parts_of("head_dim=128,heads=64/16,batch=16,seqlen=2048,mask=causal_bottom_right"), 1);
  for (int batch = 1; batch <= 64; batch *= 2) {
    const int tiles = 16 * batch, parts = parts_of("head_dim=128,heads=71/1,seqlen=2048,batch=" +
                                                   std::to_string(batch));
    EXPECT_TRUE(parts == 1 || tiles * parts <= 8 * kH200.sm_count) << batch << " " << parts;
  }
}

TEST(HeadParts, DefaultTakesThemWhereKeyHeadsAreFew) {
  const auto splits = [](const std::string& text) {
    return chosen_for(gradients(text)).config.get("split_heads", 0) == 1;
  };
  const std::string causal = ",mask=causal_bottom_right";
  EXPECT_TRUE(splits("head_dim=128,heads=32/1,batch=4,seqlen=4096" + causal));
  EXPECT_TRUE(splits("head_dim=64,heads=71/1,batch=2,seqlen=2048" + causal));
  EXPECT_TRUE(splits("head_dim=128,heads=14/2,batch=2,seqlen=2048" + causal));
  EXPECT_TRUE(splits("head_dim=256,heads=32/1,batch=1,seqlen=2048" + causal));
  EXPECT_TRUE(splits("head_dim=64,heads=32/1,batch=1,seqlen=4096,deterministic=1" + causal));
  // The grid is full.
  EXPECT_FALSE(splits("head_dim=128,heads=32/8,batch=8,seqlen=8192" + causal));
  EXPECT_FALSE(splits("head_dim=64,heads=64/8,batch=16,seqlen=4096" + causal));
  EXPECT_FALSE(splits("head_dim=128,heads=64/32,batch=4,seqlen=4096"));
}

// Winners of older versions have no such knob. They stay legal, and render as they did.
TEST(HeadParts, ConfigsWithoutTheKnobTakeWholeGroups) {
  const Problem p = gradients("head_dim=128,heads=32/8,seqlen=4096");
  for (const KernelTemplate* family : {&backward_sm90(), &backward_sm90_one_kernel()}) {
    const Config whole = family->default_config(spec_of(p), hopper(), shape_of(p), kH200);
    Config older;
    for (const auto& [name, value] : whole.knobs())
      if (name != "split_heads") older.set(name, value);
    EXPECT_EQ(family->space(spec_of(p), hopper()).broken(older), std::nullopt);
    const std::string text = render(*family, spec_of(p), hopper(), older).text;
    EXPECT_EQ(text.find("attune_join("), std::string::npos);
    EXPECT_EQ(family->launch(spec_of(p), older, shape_of(p), kH200).steps.size(),
              family->launch(spec_of(p), whole, shape_of(p), kH200).steps.size());
  }
}

class HeadPartsCompile : public testing::HopperCompile {};

// Parts take a few registers of kernels that have none to spare.
TEST_F(HeadPartsCompile, KernelsDoNotSpill) {
  const std::string causal = ",mask=causal_bottom_right";
  for (const auto& [family, text] :
       {std::pair{&backward_sm90_one_kernel(), "head_dim=128,heads=32/1,seqlen=4096" + causal},
        {&backward_sm90_one_kernel(), "head_dim=128,heads=7/1,seqlen=4096,dropout=0.1" + causal},
        {&backward_sm90_one_kernel(), "head_dim=64,heads=71/1,seqlen=4096" + causal},
        {&backward_sm90_one_kernel(), "head_dim=64,heads=4/2,seqlen=512,deterministic=1" + causal},
        {&backward_sm90(), "head_dim=128,heads=32/1,seqlen=4096,accumulate=1" + causal},
        {&backward_sm90(), "head_dim=96,heads=28/4,seqlen=4096,dropout=0.1" + causal},
        {&backward_sm90(), std::string("head_dim=256,heads=32/1,seqlen=4096")}}) {
    const Problem p = gradients(text);
    const Config config = with(family->default_config(spec_of(p), hopper(), shape_of(p), kH200), 1);
    EXPECT_EQ(testing::compile_fault(*compiler_, *family, spec_of(p), hopper(), config), "")
        << testing::text_of(p, config);
  }
}

}  // namespace
}  // namespace attune
