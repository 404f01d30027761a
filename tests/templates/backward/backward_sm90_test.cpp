// SPDX-License-Identifier: Apache-2.0
// The families of gradients on Hopper without a device: which rows see a key, shared memory layout,
// search space and defaults, launch steps, and NVRTC's report on a few defaults (skips aloud
// without NVRTC). backward_test.cpp checks results.
#include "generator/families/families.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "generator/core/problem/visibility.hpp"
#include "generator/families/backward/sm90/gradients_sm90.hpp"
#include "templates/shared/layouts/backward_band_layout.h"
#include "templates/shared/layouts/backward_prepare_layout.h"
#include "templates/shared/visible_rows.h"
#include "tests/templates/backward/backward_sm90_cases.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::default_of;
using testing::expect_regions;
using testing::hopper;
using testing::kH200;
using testing::kOneKernel;
using testing::kTwoKernels;
using testing::regions_of;
using testing::text_of;

std::vector<Problem> problems() {
  return testing::hopper_problems(
      "bf16,op=attention_backward",
      {"head_dim=16", "head_dim=64", "head_dim=72", "head_dim=96", "head_dim=128", "head_dim=192",
       "head_dim=256", "head_dim_qk=192,head_dim_v=128", "head_dim_qk=40,head_dim_v=256",
       "head_dim_qk=256,head_dim_v=16"},
      {"", ",gradients=q", ",gradients=k", ",gradients=v"});
}

// Applies the rule of visibility.h to each row.
TEST(VisibleRows, AreTheRowsThatSeeTheKey) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"})
    for (const char* window : {"-:-", "5:-", "-:3", "5:3", "0:0", "2147400000:2147400000"})
      for (const char* lengths :
           {"seqlen_q=20,seqlen_kv=20", "seqlen_q=7,seqlen_kv=30", "seqlen_q=30,seqlen_kv=7"}) {
        const Problem p = parse_problem(std::string("head_dim=16,heads=1,mask=") + mask +
                                        ",window=" + window + "," + lengths);
        for (int64_t key = 0; key < p.seqlen_kv; ++key) {
          const RowInterval rows = visible_rows(p, p, key);
          for (int64_t row = 0; row < p.seqlen_q; ++row)
            ASSERT_EQ(row >= rows.first && row <= rows.last, visible_keys(p, p, row).contains(key))
                << to_text(p) << " key " << key << " row " << row;
        }
      }
}

std::vector<testing::Region> regions_of_kernel(const BackwardKernel& kernel) {
  if (kernel.makes == BackwardMakes::kBand) return regions_of(backward_band_layout());
  if (kernel.makes != BackwardMakes::kAll) return regions_of(kernel.tile);
  if (!kernel.ordered) return testing::unordered_regions_of(kernel.tile);
  return kernel.dq_warpgroup ? testing::dq_warpgroup_regions_of(kernel.tile)
                             : testing::one_kernel_regions_of(kernel.tile);
}

TEST(BackwardSm90Layout, RegionsFollowEachOtherAndTilesKeepTheSwizzlePhase) {
  for (const int stay : {64, 128, 192})
    for (const int step : {48, 64, 112})
      for (const bool both : {false, true}) {
        const BackwardSm90Tile tile{stay, step, 3, 2, 72, 200, both, both};
        expect_regions(regions_of(tile), backward_sm90_layout(tile).bytes);
      }
}

std::vector<const GradientsSm90*> families() {
  std::vector<const GradientsSm90*> all;
  for (const KernelTemplate* one : {&backward_sm90(), &backward_sm90_one_kernel(),
                                    &backward_sm90_stored(), &backward_sm90_band()})
    all.push_back(static_cast<const GradientsSm90*>(one));
  return all;
}

void expect_fits_the_machine(const GradientsSm90& family, const Problem& p) {
  const KernelSpec spec = spec_of(p);
  const SearchSpace space = family.space(spec, hopper());
  const Config chosen = family.default_config(spec, hopper(), shape_of(p), kH200);
  EXPECT_EQ(space.broken(chosen), std::nullopt) << text_of(p, chosen);
  if (p.seqlen_q != 1 || p.mask != Mask::kNone) return;  // the space depends on neither
  const std::vector<Config> all = space.enumerate();
  ASSERT_GE(all.size(), 1u) << to_text(p);
  for (size_t i = 0; i < all.size(); i += 7) {
    const Resources r = family.resources(spec, hopper(), all[i]);
    EXPECT_LE(r.shared_bytes, hopper().shared_bytes_per_block) << text_of(p, all[i]);
    for (const BackwardKernel& kernel : family.kernels(spec, all[i])) {
      expect_regions(regions_of_kernel(kernel), backward_shared_bytes(kernel));
      const int warpgroups = kernel.tile.stay_rows / kWarpgroupRows;
      const PrefillSm90Registers registers = backward_sm90_registers(warpgroups);
      EXPECT_LE(warpgroups * registers.consumer + registers.producer,
                (warpgroups + 1) * registers.launch);
      EXPECT_LT(kernel.accumulators, kernel.dq_warpgroup ? kDqWarpgroupRegisters.keys
                                     : registers.moved   ? registers.consumer
                                                         : registers.launch);
    }
  }
}

// A family that serves a spec has a legal config for it, since the registry compares defaults.
TEST(BackwardSm90Space, DefaultsAreLegalAndEveryLegalConfigFitsTheMachine) {
  std::map<std::string_view, int> served;
  std::vector<Problem> all = problems();
  all.push_back(parse_problem(
      "op=attention_backward,dtype=bf16,head_dim=64,heads=4,seqlen=1,mask=none,window=9:9"));
  for (const Problem& p : all)
    for (const GradientsSm90* family : families())
      if (!family->refuses(spec_of(p), hopper())) {
        ++served[family->name()];
        expect_fits_the_machine(*family, p);
      }
  for (const GradientsSm90* family : families()) {
    EXPECT_GT(served[family->name()], 0) << family->name();
    EXPECT_LE(family->space(spec_of(problems().front()), hopper()).knobs().size(), 10u);
  }
}

// A launch only has the steps that the requested gradients need.
TEST(BackwardSm90Launch, HasAStepForEachNeededKernel) {
  const auto entries = [](const char* gradients, int head_dim, bool one_kernel = false) {
    const Problem p = parse_problem("op=attention_backward,heads=4,seqlen=1000,head_dim=" +
                                    std::to_string(head_dim) + gradients);
    Config config = default_of(p);
    config.set("fold_sums", 0);
    if (one_kernel) config = parse_config(kOneKernel);
    const KernelTemplate& t = one_kernel ? backward_sm90_one_kernel() : backward_sm90();
    const LaunchPlan plan = t.launch(spec_of(p), config, shape_of(p), kH200);
    const std::string source = render(t, spec_of(p), hopper(), config).text;
    std::string all;
    for (const LaunchStep& step : plan.steps) {
      all += step.entry + " ";
      EXPECT_NE(source.find("    " + step.entry + "("), std::string::npos) << step.entry;
    }
    for (const char* entry : {"attune_kernel", "attune_keys", "attune_values", "attune_round"})
      if (all.find(entry) == std::string::npos) {
        EXPECT_EQ(source.find("    " + std::string(entry) + "("), std::string::npos) << entry;
      }
    return all;
  };
  // Blocks are persistent: no more than multiprocessors.
  const Problem p = parse_problem("op=attention_backward,heads=64,seqlen=1000,head_dim=128");
  const LaunchPlan plan = backward_sm90().launch(spec_of(p), default_of(p), shape_of(p), kH200);
  EXPECT_EQ(plan.main().grid_x, 132u);
  EXPECT_EQ(plan.main().num_tiles, 64 * 8);
  EXPECT_EQ(entries("", 128), "attune_prepare attune_kernel attune_keys ");
  EXPECT_EQ(entries(",gradients=q", 128), "attune_prepare attune_kernel ");
  EXPECT_EQ(entries(",gradients=k", 128), "attune_prepare attune_keys ");
  EXPECT_EQ(entries(",gradients=kv", 128), "attune_prepare attune_keys ");
  EXPECT_EQ(entries("", 256), "attune_prepare attune_kernel attune_keys attune_values ");
  EXPECT_EQ(entries(",gradients=v", 256), "attune_prepare attune_keys ");
  EXPECT_EQ(entries("", 128, true), "attune_prepare attune_kernel attune_round ");
}

// Tiles of a narrow window are short and equal, so blocks are persistent. With a mask alone or a
// wide window, the device distributes the tiles.
TEST(BackwardSm90Launch, BlocksArePersistentIfTilesAreShortAndEqual) {
  const auto grids = [](const std::string& mask) {
    const Problem p = parse_problem(
        "op=attention_backward,dtype=bf16,head_dim=64,heads=64,batch=2,seqlen=2048,mask=" + mask);
    const Config config = parse_config(kTwoKernels);
    const LaunchPlan plan = backward_sm90().launch(spec_of(p), config, shape_of(p), kH200);
    EXPECT_EQ(plan.steps[1].num_tiles, 128 * 16);
    return std::pair{plan.steps[1].grid_x, plan.steps[2].grid_x};  // of rows, of keys
  };
  using Grids = std::pair<unsigned, unsigned>;
  EXPECT_EQ(grids("none"), Grids(132, 2048));
  EXPECT_EQ(grids("causal_bottom_right"), Grids(2048, 2048));
  EXPECT_EQ(grids("causal_bottom_right,window=127:0"), Grids(132, 132));
  EXPECT_EQ(grids("none,window=127:128"), Grids(132, 132));
  EXPECT_EQ(grids("none,window=127:129"), Grids(2048, 2048));
  EXPECT_EQ(grids("causal_bottom_right,window=1023:0"), Grids(2048, 2048));
  EXPECT_EQ(grids("none,window=127:-"), Grids(2048, 2048));
}

// Groups of lanes cover all columns and rows, including padding. A block of the first step has rows
// of one head.
TEST(BackwardSm90Launch, FirstStepHasAllRows) {
  for (const int head_dim : {16, 40, 64, 96, 128, 256}) {
    EXPECT_GE(8 * backward_row_lanes(head_dim), head_dim);
    EXPECT_LE(backward_rows_of_group(head_dim), backward_row_lanes(head_dim));
    EXPECT_EQ(kPrepareThreads % backward_row_lanes(head_dim), 0);
    for (const int seqlen : {1, 77, 1000, 4096}) {
      const Problem p =
          parse_problem("op=attention_backward,batch=3,heads=5,seqlen=" + std::to_string(seqlen) +
                        ",head_dim=" + std::to_string(head_dim));
      Config config = default_of(p);
      config.set("fold_sums", 0);
      const LaunchPlan plan = backward_sm90().launch(spec_of(p), config, shape_of(p), kH200);
      ASSERT_EQ(plan.steps.front().entry, "attune_prepare");
      const int64_t blocks = plan.steps.front().grid_x, rows = plan.workspace.front().columns;
      EXPECT_EQ(blocks % 15, 0);
      EXPECT_GE(rows, seqlen);
      EXPECT_GE(blocks / 15 * backward_rows_of_block(head_dim), rows);
      EXPECT_LT((blocks / 15 - 1) * backward_rows_of_block(head_dim), rows);
    }
  }
}

// The kernel of dQ folds the sums itself, and for dQ alone the workspace is empty.
TEST(BackwardSm90Launch, HasNoFirstStepIfSumsAreFolded) {
  for (const char* gradients : {"", ",gradients=q", ",gradients=qk"}) {
    const Problem p = parse_problem(
        std::string("op=attention_backward,heads=4,seqlen=1000,head_dim=128") + gradients);
    Config config = default_of(p);
    config.set("fold_sums", 1);
    const LaunchPlan plan = backward_sm90().launch(spec_of(p), config, shape_of(p), kH200);
    EXPECT_EQ(plan.main().entry, kEntryName);
    EXPECT_EQ(plan.steps.front().entry, kEntryName);
    EXPECT_EQ(plan.workspace_bytes > 0, std::string(gradients) != ",gradients=q");
    EXPECT_EQ(render(backward_sm90(), spec_of(p), hopper(), config).text.find("attune_prepare("),
              std::string::npos);
  }
}

TEST(BackwardSm90Space, SentencesNameTheRule) {
  const Problem p = parse_problem("op=attention_backward,head_dim=128,heads=8,seqlen=4096");
  const SearchSpace space = backward_sm90().space(spec_of(p), hopper());
  Config c = default_of(p);
  c.set("block_n", 128);
  EXPECT_NE(space.broken(c).value_or("").find("registers"), std::string::npos);
  // dK alone needs too many registers, so separate kernels do not help.
  const Problem wide = parse_problem("op=attention_backward,head_dim=256,heads=8,seqlen=4096");
  c = default_of(wide);
  c.set("key_block_m", 128);
  EXPECT_NE(backward_sm90().space(spec_of(wide), hopper()).broken(c).value_or("").find("registers"),
            std::string::npos);
}

TEST(BackwardSm90Space, RefusesWithAReason) {
  const auto refusal = [](const char* text, const char* arch) {
    return backward_sm90()
        .refuses(
            spec_of(parse_problem(std::string("op=attention_backward,heads=8,seqlen=64,") + text)),
            parse_arch(arch))
        .value_or("");
  };
  EXPECT_EQ(refusal("head_dim=128", "sm_90a"), "");
  EXPECT_NE(refusal("head_dim=128", "sm_90"), "");
  EXPECT_NE(refusal("head_dim=264", "sm_90a").find("264"), std::string::npos);
  EXPECT_NE(refusal("head_dim=128,dtype=fp32", "sm_90a").find("fp32"), std::string::npos);
  EXPECT_NE(refusal("head_dim=128,alibi=1", "sm_90a").find("alibi"), std::string::npos);
}

class BackwardSm90Compile : public testing::HopperCompile {};

TEST_F(BackwardSm90Compile, DefaultsCompileWithoutFaults) {
  const std::string op = "op=attention_backward,seqlen=4096,dtype=bf16,";
  expect_free_defaults(backward_sm90(), {op + "heads=16,head_dim=64,mask=causal_bottom_right",
                                         op + "heads=32/8,head_dim=128,mask=causal_bottom_right",
                                         op + "heads=16,head_dim=128,batch=4",
                                         op + "heads=16/2,head_dim=256,batch=8,window=100:100"});
}

}  // namespace
}  // namespace attune
