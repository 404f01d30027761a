// SPDX-License-Identifier: Apache-2.0
// Launch plans: structure and sizes combined, impossible structures, counts too large for a launch.
#include "generator/launch_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/core/system/error.hpp"
#include "generator/template_registry.hpp"
#include "tests/support/error_text.hpp"
#include "tests/support/regions.hpp"

namespace attune {
namespace {

using testing::error_text;
using ::testing::HasSubstr;

// Returns a structure with a step before and after the main one. The first writes a tensor that the
// main step reads through a tensor map; the last joins the main step's partial results.
LaunchStructure three_steps() {
  return {.steps = {{.entry = "prepare", .tensor_maps = {{Workspace{1}}}},
                    {.parts = {ArgumentPart::kBase, ArgumentPart::kScales},
                     .tensor_maps = {{Operand::kQ}, {Workspace{1}}}},
                    {.entry = "join"}},
          .main_step = 1,
          .workspace = {{.name = "tickets", .zeroed = true},
                        {.name = "prepared", .dtype = Dtype::kE4m3},
                        {.name = "parts"}}};
}

LaunchSizes three_sizes() {
  return {.steps = {{.grid_x = 8}, {.grid_x = 132, .num_tiles = 500}, {.grid_x = 4}},
          .workspace = {{.columns = 3}, {.columns = 300, .rows = 2}, {.columns = 10}}};
}

TEST(LaunchPlan, AnyStepMayBeTheMainOneAndTensorsFollowEachOther) {
  const LaunchPlan plan = launch_plan(three_steps(), three_sizes());
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.main().entry, kEntryName);
  EXPECT_EQ(plan.main().grid_x, 132u);
  EXPECT_EQ(plan.main().num_tiles, 500);
  EXPECT_EQ(plan.steps[2].entry, "join");
  EXPECT_EQ(plan.steps[2].num_tiles, 0);
  EXPECT_TRUE(plan.uses_tensor_maps());
  EXPECT_EQ(plan.workspace[1].count(), 600);
  testing::expect_workspace(plan);
}

// Steps of rounds are launched one after the other for some heads, then for the next heads. Steps
// before and after the rounds are launched once.
TEST(LaunchPlan, StepsOfRoundsAreLaunchedForSomeHeadsAtATime) {
  const auto launches = [](LaunchStructure::Rounds steps, LaunchSizes::Rounds sizes_of) {
    LaunchStructure structure = three_steps();
    structure.rounds = steps;
    LaunchSizes sizes = three_sizes();
    sizes.rounds = sizes_of;
    std::string text;
    KernelArguments arguments{};
    launch_plan(structure, sizes).each_launch(arguments, [&](size_t i, const KernelArguments& a) {
      text += std::to_string(i) + ":" + std::to_string(a.num_tiles);
      if (i >= steps.begin && i < steps.end)
        text += "(" + std::to_string(a.round.first_head) + "+" + std::to_string(a.round.heads) +
                "/" + std::to_string(a.round.stride) + ")";
      text += " ";
    });
    return text;
  };
  EXPECT_EQ(launches({}, {}), "0:0 1:500 2:0 ");
  EXPECT_EQ(launches({1, 2}, {.heads = 10, .of_round = 10, .stride = 7}), "0:0 1:500(0+10/7) 2:0 ");
  EXPECT_EQ(launches({1, 3}, {.heads = 10, .of_round = 4, .stride = 7}),
            "0:0 1:500(0+4/7) 2:0(0+4/7) 1:500(4+4/7) 2:0(4+4/7) 1:250(8+2/7) 2:0(8+2/7) ");
  EXPECT_EQ(launches({1, 3}, {.heads = 0, .of_round = 1}), "0:0 ");  // nothing to do
}

TEST(LaunchPlan, SizesOfAnotherStructureAreRefused) {
  LaunchSizes sizes = three_sizes();
  sizes.steps.pop_back();
  EXPECT_THAT(error_text([&] { launch_plan(three_steps(), sizes); }, ErrorCode::kInternal),
              HasSubstr("has 3 steps, its sizes have 2"));
  sizes = three_sizes();
  sizes.workspace.push_back({});
  EXPECT_THAT(error_text([&] { launch_plan(three_steps(), sizes); }, ErrorCode::kInternal),
              HasSubstr("has 3 workspace tensors, its sizes have 4"));
}

TEST(LaunchPlan, StructuresThatNameMissingStepsOrTensorsAreRefused) {
  LaunchStructure structure = three_steps();
  structure.main_step = 3;
  EXPECT_THAT(error_text([&] { launch_plan(structure, three_sizes()); }, ErrorCode::kInternal),
              HasSubstr("the main step is 3, and there are 3 steps"));
  structure = three_steps();
  structure.steps[0].tensor_maps[0].tensor = Workspace{3};
  EXPECT_THAT(error_text([&] { launch_plan(structure, three_sizes()); }, ErrorCode::kInternal),
              HasSubstr("a tensor map of prepare sees tensor 3 of a workspace that has 3"));
  structure = three_steps();
  structure.workspace[2].zeroed = true;
  EXPECT_THAT(error_text([&] { launch_plan(structure, three_sizes()); }, ErrorCode::kInternal),
              HasSubstr("parts is zeroed, but comes after one that is not"));
}

TEST(LaunchPlan, CountsThatNoLaunchCanNumberAreRefused) {
  EXPECT_EQ(tile_count(2'000'000'000), 2'000'000'000);
  EXPECT_EQ(grid_extent(0), 1u);
  for (const int64_t tiles : {int64_t{1} << 31, int64_t{1} << 32, (int64_t{1} << 31) - 1})
    EXPECT_THAT(error_text([&] { tile_count(tiles); }, ErrorCode::kUnsupported),
                HasSubstr(std::to_string(tiles) + " work tiles are too many"));
}

struct Case {
  const KernelTemplate* family;
  Arch arch;
  KernelSpec spec;
};

// Returns each family with specs that it serves, on the first arch that serves them.
std::vector<Case> served() {
  std::vector<Case> all;
  std::vector<std::string> archs = known_cuda_archs();
  archs.push_back("cpu:x86-64");
  for (const KernelTemplate* family : all_templates())
    for (const char* text :
         {"dtype=fp16,head_dim=128,heads=8/2,seqlen=64,mask=causal_bottom_right",
          "dtype=e4m3,head_dim=128,heads=8/2,seqlen=64,mask=none",
          "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=128,heads=8,seqlen=64",
          "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=128,heads=8,seqlen=64,scale_block=64"})
      for (const std::string& name : archs) {
        const KernelSpec spec = spec_of(parse_problem(text));
        if (family->refuses(spec, parse_arch(name))) continue;
        all.push_back({family, parse_arch(name), spec});
        break;
      }
  return all;
}

// Every config of every family has sizes for its structure, whatever the shape.
TEST(EveryFamily, StructureServesEveryShape) {
  const Shape shapes[] = {{1, 1, 1, 8, 2}, {3, 512, 70000, 8, 2}, {64, 0, 0, 8, 2}};
  for (const Case& s : served()) {
    const std::vector<Config> configs = s.family->space(s.spec, s.arch).enumerate();
    for (size_t i = 0; i < configs.size(); i += 1 + configs.size() / 50)
      for (const Shape& shape : shapes)
        for (const int sm_count : {1, 132}) {
          const LaunchPlan plan =
              s.family->launch(s.spec, configs[i], shape, {sm_count, 50 << 20, 4e12});
          EXPECT_EQ(plan.main().entry, kEntryName) << configs[i].to_text();
          EXPECT_EQ(plan.main().parts.front(), ArgumentPart::kBase);
          testing::expect_workspace(plan);
        }
  }
}

// 2^38 rows need more blocks than a grid can have, in kernels that number them.
TEST(EveryFamily, RefusesMoreTilesThanALaunchCanNumber) {
  const Shape huge{int64_t{1} << 26, 1, 1, 4096, 1024};
  size_t refused = 0;
  for (const Case& s : served()) {
    if (s.arch.target == Target::kCpu) continue;  // threads count in 64 bits
    const Config config =
        s.family->default_config(s.spec, s.arch, {1, 64, 64, 8, 2}, typical_device(s.arch).facts);
    EXPECT_THAT(
        error_text([&] { s.family->sizes(s.spec, config, huge, {}); }, ErrorCode::kUnsupported),
        HasSubstr("too many for one launch"))
        << s.family->name();
    ++refused;
  }
  EXPECT_GE(refused, 8u);
}

}  // namespace
}  // namespace attune
