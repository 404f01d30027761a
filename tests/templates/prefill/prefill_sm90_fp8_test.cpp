// SPDX-License-Identifier: Apache-2.0
// prefill_sm90_fp8 without a device: its layouts, search space and defaults, the plan of two
// kernels, and what NVRTC says of a few configs (skips aloud without NVRTC).
#include <gtest/gtest.h>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/families.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "templates/shared/layouts/prefill_sm90_fp8_layout.h"
#include "tests/templates/prefill/hopper_cases.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::expect_regions;
using testing::expect_workspace;
using testing::hopper;
using testing::kH200;
using testing::regions_of;
using testing::text_of;

std::vector<Problem> problems() {
  return testing::hopper_problems(
      "e4m3",
      {"head_dim=16", "head_dim=64", "head_dim=72", "head_dim=128", "head_dim=256",
       "head_dim_qk=192,head_dim_v=128", "head_dim_qk=40,head_dim_v=256"},
      {"", ",accuracy=fast,scale_block=128", ",v_layout=transposed"});
}

TEST(PrefillSm90Fp8Layout, TilesOfEightBitsKeepTheSwizzlePhase) {
  for (const int head_dim_qk : {16, 40, 72, 200})
    for (const int head_dim_v : {16, 72, 136, 256})
      for (const int block_n : {64, 96, 128, 160}) {
        const PrefillSm90Config c{128, block_n, 1, 2, 0, 1, 1, head_dim_qk, head_dim_v, 1};
        const PrefillSm90Layout l = prefill_sm90_layout(c);
        EXPECT_EQ(l.panels_v * l.row_v, block_n);
        EXPECT_EQ(l.rows_v, head_dim_v);
        expect_regions(regions_of(c), l.bytes);
      }
}

TEST(PrefillSm90Fp8Layout, TransposingTilesHoldTheirBoxes) {
  for (const int head_dim : {16, 40, 64, 72, 128, 136, 256}) {
    for (const bool given : {false, true}) {
      const TransposeLayout l = transpose_layout(head_dim, given);
      expect_regions(regions_of(l, head_dim), l.bytes);
      EXPECT_LE(l.bytes, hopper().shared_bytes_per_block);
    }
    EXPECT_GT(transpose_layout(head_dim, false).out, 0);
    EXPECT_EQ(transpose_layout(head_dim, true).out, 0);
  }
}

TEST(PrefillSm90Fp8Layout, GivenVStandsApartAndKeepsTheSwizzlePhase) {
  for (const int head_dim : {32, 64, 96, 128, 256})
    for (const int block_n : {64, 96, 128}) {
      const PrefillSm90Config c{128, block_n, 1, 2, 0, 1, 0, head_dim, head_dim, 1, true};
      expect_regions(regions_of(c), prefill_sm90_layout(c).bytes);
    }
}

TEST(PrefillSm90Fp8Layout, RegistersNeverExceedThePoolOfTheLaunch) {
  for (int warpgroups = 1; warpgroups <= 4; ++warpgroups)
    for (int ctas = 1; ctas <= 3; ++ctas) {
      const PrefillSm90Registers r =
          prefill_sm90_registers(warpgroups, ctas, kProducer8BitRegisters);
      if (!r.moved) continue;
      EXPECT_LE(warpgroups * r.consumer + r.producer, (warpgroups + 1) * r.launch);
      EXPECT_GE(r.producer, 24);
      EXPECT_EQ(r.consumer % 8 + r.producer % 8, 0);
    }
}

TEST(PrefillSm90Fp8Space, DefaultsAreLegalAndEveryLegalConfigFitsTheMachine) {
  for (const Problem& p : problems()) {
    const KernelSpec spec = spec_of(p);
    ASSERT_EQ(prefill_sm90_fp8().refuses(spec, hopper()), std::nullopt) << to_text(p);
    const SearchSpace space = prefill_sm90_fp8().space(spec, hopper());
    const Config chosen = prefill_sm90_fp8().default_config(spec, hopper(), shape_of(p), kH200);
    EXPECT_EQ(space.broken(chosen), std::nullopt) << text_of(p, chosen);
    if (p.seqlen_q != 1) continue;  // the space does not depend on lengths
    const std::vector<Config> all = space.enumerate();
    ASSERT_GE(all.size(), 40u) << to_text(p);
    for (size_t i = 0; i < all.size(); i += 37) {
      const Resources r = prefill_sm90_fp8().resources(spec, hopper(), all[i]);
      const PrefillSm90Config c = sm90_layout_config(spec, all[i]);
      expect_regions(regions_of(c), prefill_sm90_layout(c).bytes);
      EXPECT_LE(prefill_sm90_layout(c).bytes, r.shared_bytes) << text_of(p, all[i]);
      EXPECT_LE(r.min_blocks_per_sm * (r.shared_bytes + 1024), hopper().shared_bytes_per_sm)
          << text_of(p, all[i]);
    }
  }
}

TEST(PrefillSm90Fp8Space, RefusesWithAReason) {
  const auto refused = [](const char* text, const char* arch = "sm_90a") {
    return prefill_sm90_fp8().refuses(spec_of(parse_problem(text)), parse_arch(arch)).value_or("");
  };
  EXPECT_EQ(refused("dtype=e4m3,head_dim=128,heads=8,seqlen=64"), "");
  EXPECT_EQ(refused("dtype=e4m3,dtype_kv=e5m2,head_dim=72,heads=8,seqlen=64,scale_block=64"), "");
  EXPECT_NE(refused("dtype=e4m3,head_dim=128,heads=8,seqlen=64", "sm_90").find("sm_90a"),
            std::string::npos);
  EXPECT_NE(refused("dtype=bf16,head_dim=128,heads=8,seqlen=64").find("bf16"), std::string::npos);
  EXPECT_NE(refused("dtype=e4m3,dtype_o=fp32,head_dim=128,heads=8,seqlen=64").find("dtype_o"),
            std::string::npos);
  EXPECT_NE(refused("dtype=e4m3,head_dim=128,heads=8,seqlen=64,scale_block_q=32").find("64"),
            std::string::npos);
}

TEST(PrefillSm90Fp8Space, TheAccurateModeAlwaysFlushesWhereSumsHaveAPlaceAndTheFastNever) {
  for (const int head_dim : {64, 128, 256})
    for (const char* mode : {"accurate", "fast"}) {
      const Problem p =
          parse_problem("dtype=e4m3,heads=8,seqlen=4096,head_dim=" + std::to_string(head_dim) +
                        ",accuracy=" + mode);
      const std::vector<Config> configs =
          prefill_sm90_fp8().space(spec_of(p), hopper()).enumerate();
      EXPECT_FALSE(configs.empty());
      for (const Config& c : configs) {
        EXPECT_EQ(c.at("flush_keys") > 0, std::string(mode) == "accurate");
        EXPECT_LE(c.at("flush_keys"), 1024);  // what the bound of the tuner's gate is made for
        if (c.at("flush_keys") > 0 && !c.at("o_staging")) {
          EXPECT_NE(c.at("scheduler"), 0) << c.to_text();
        }
      }
    }
}

TEST(PrefillSm90Fp8Space, FactorsOfAStepThatWouldSpillAreCountedAsRegisters) {
  EXPECT_EQ(columns_of_factor(128, 0), 128);
  EXPECT_EQ(columns_of_factor(128, 176), 16);
  EXPECT_EQ(columns_of_factor(96, 64), 32);
  EXPECT_EQ(columns_of_factor(64, 128), 64);
  EXPECT_EQ(prefill_sm90_fp8_accumulators(128, 256, true, 0), 208);
  EXPECT_EQ(prefill_sm90_fp8_accumulators(128, 256, true, 32), 209);
  EXPECT_EQ(prefill_sm90_fp8_accumulators(128, 256, true, 16), 213);  // one more than fit
}

TEST(PrefillSm90Fp8Space, LateMaximaAreOfferedWhereTheirWayBackFits) {
  const auto late = [](const std::string& text) {
    const KernelSpec spec = spec_of(parse_problem("dtype=e4m3,heads=8,seqlen=4096," + text));
    const SearchSpace space = prefill_sm90_fp8().space(spec, hopper());
    size_t found = 0;
    for (const Config& c : space.enumerate()) found += c.at("row_max") == 1;
    const Config chosen =
        prefill_sm90_fp8().default_config(spec, hopper(), {8, 4096, 4096, 8, 8}, kH200);
    EXPECT_EQ(chosen.at("row_max") == 1, found > 0) << text;
    return found > 0;
  };
  EXPECT_FALSE(late("head_dim=64"));
  EXPECT_TRUE(late("head_dim=64,accuracy=fast,mask=causal_bottom_right"));
  EXPECT_TRUE(late("head_dim=128,accuracy=fast"));
  EXPECT_FALSE(late("head_dim=128"));
  EXPECT_FALSE(late("head_dim=256,accuracy=fast"));
  EXPECT_FALSE(late("head_dim_qk=192,head_dim_v=128,accuracy=fast"));
  EXPECT_FALSE(late("head_dim=64,accuracy=fast,scale_block=128"));
}

TEST(PrefillSm90Fp8Space, LateMaximaStandBesideTilesThatLeaveRegisters) {
  for (const char* mask : {"none", "causal_top_left"}) {
    const Problem p = parse_problem(
        std::string("dtype=e4m3,head_dim=128,heads=16,batch=4,seqlen=4096,accuracy=fast,mask=") +
        mask);
    const SearchSpace space = prefill_sm90_fp8().space(spec_of(p), hopper());
    Config c = prefill_sm90_fp8().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    EXPECT_EQ(c.at("block_m"), 192) << text_of(p, c);
    EXPECT_EQ(c.at("row_max"), 1) << text_of(p, c);
    c.set("block_m", 128);
    c.set("block_n", 160);
    EXPECT_EQ(space.broken(c), std::nullopt);
    c.set("block_n", 192);
    EXPECT_NE(space.broken(c).value_or("").find("row_max 1"), std::string::npos);
    c.set("row_max", 0);
    EXPECT_EQ(space.broken(c), std::nullopt);
  }
}

TEST(PrefillSm90Fp8Space, TransposesInsideOnlyWhatItCan) {
  const auto inside = [](const std::string& text, std::string* first = nullptr) {
    size_t found = 0;
    const Problem p = parse_problem("dtype=e4m3,heads=8,seqlen=4096,accuracy=fast," + text);
    for (const Config& c : prefill_sm90_fp8().space(spec_of(p), hopper()).enumerate()) {
      if (!c.at("transpose_inside")) continue;
      EXPECT_EQ(c.at("kv_ring"), 0) << c.to_text();
      if (first && c.at("block_m") == 128 && c.at("block_n") == 128 && c.at("kv_slots") == 2)
        *first = c.to_text();
      ++found;
    }
    return found;
  };
  std::string widest;
  EXPECT_GT(inside("head_dim=256", &widest), 0u);
  EXPECT_NE(widest.find("o_staging=0"), std::string::npos) << widest;  // O has no staging memory
  EXPECT_GT(inside("head_dim=128"), 0u);
  EXPECT_EQ(inside("head_dim=72"), 0u);
  EXPECT_EQ(inside("head_dim=128,v_layout=transposed"), 0u);
}

TEST(PrefillSm90Fp8Launch, TransposesVAheadOfTheKernel) {
  const Problem p = parse_problem(
      "dtype=e4m3,head_dim_qk=72,head_dim_v=40,heads=8/2,batch=3,seqlen_q=500,seqlen_kv=1000,"
      "mask=causal_bottom_right");
  Config c = prefill_sm90_fp8().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  c.set("scheduler", 2);
  const LaunchPlan plan = prefill_sm90_fp8().launch(spec_of(p), c, shape_of(p), kH200);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].entry, "attune_transpose_v");
  EXPECT_EQ(plan.steps[0].grid_x, 8u * 2u * 3u);
  EXPECT_TRUE(plan.steps[0].early);
  EXPECT_EQ(plan.main_step, 1u);
  EXPECT_TRUE(plan.main().early);
  ASSERT_EQ(plan.workspace.size(), 2u);
  EXPECT_EQ(plan.workspace[1].name, "v_transposed");
  EXPECT_EQ(plan.workspace[1].columns, 1024);
  EXPECT_EQ(plan.workspace[1].count(), 3 * 2 * 40 * 1024);
  EXPECT_TRUE(plan.workspace[0].zeroed);  // the tile counter
  expect_workspace(plan);
  EXPECT_EQ(std::get<Workspace>(plan.main().tensor_maps[2].tensor), Workspace{1});
  EXPECT_EQ(std::get<Workspace>(plan.steps[0].tensor_maps[1].tensor), Workspace{1});
  EXPECT_EQ(plan.main().tensor_maps[2].box_rows, 40);
}

TEST(PrefillSm90Fp8Launch, TransposesVInsideWithoutAWorkspace) {
  const Problem p = parse_problem("dtype=e4m3,head_dim=96,heads=8/2,batch=3,seqlen=500");
  Config c = prefill_sm90_fp8().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  c.set("scheduler", 1);
  c.set("transpose_inside", 1);
  const LaunchPlan plan = prefill_sm90_fp8().launch(spec_of(p), c, shape_of(p), kH200);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.workspace_bytes, 0);
  EXPECT_TRUE(plan.main().early);
  const TensorMapPlan& v = plan.main().tensor_maps[2];
  EXPECT_EQ(std::get<Operand>(v.tensor), Operand::kV);
  EXPECT_EQ(v.box_columns, 128);
  EXPECT_EQ(v.box_rows, c.at("block_n"));
  EXPECT_EQ(v.swizzle_bytes, 128);
}

TEST(PrefillSm90Fp8Launch, FlushesIntoTheWorkspaceWhereOIsNotStaged) {
  const Problem p = parse_problem("dtype=e4m3,head_dim=256,heads=8,batch=32,seqlen=512");
  Config c = prefill_sm90_fp8().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  for (const auto& [knob, value] : {std::pair{"block_m", 128},
                                    {"block_n", 128},
                                    {"kv_slots", 2},
                                    {"o_staging", 0},
                                    {"transpose_inside", 1},
                                    {"scheduler", 2}})
    c.set(knob, value);
  EXPECT_EQ(prefill_sm90_fp8().space(spec_of(p), hopper()).broken(c), std::nullopt);
  const LaunchPlan plan = prefill_sm90_fp8().launch(spec_of(p), c, shape_of(p), kH200);
  EXPECT_EQ(plan.zeroed_bytes, kTileCounterBytes);
  EXPECT_EQ(plan.workspace_bytes - plan.zeroed_bytes, 132 * 2 * 64 * 256 * 2);  // fp16
  expect_workspace(plan);
  c.set("scheduler", 0);  // one block per tile: any number of blocks
  EXPECT_NE(prefill_sm90_fp8().space(spec_of(p), hopper()).broken(c), std::nullopt);
}

using PrefillSm90Fp8Compile = testing::HopperCompile;

TEST_F(PrefillSm90Fp8Compile, FirstCandidatesAreFree) {
  expect_free_defaults(
      prefill_sm90_fp8(),
      {"dtype=e4m3,head_dim=64,heads=8,seqlen=4096,mask=causal_bottom_right",
       "dtype=e4m3,dtype_o=fp16,head_dim=128,heads=8,seqlen=4096,accuracy=fast",
       "dtype=e4m3,head_dim=128,heads=16,batch=4,seqlen=4096,accuracy=fast",
       "dtype=e4m3,head_dim=128,heads=16,batch=4,seqlen=4096,accuracy=fast,window=300:-",
       "dtype=e4m3,head_dim=128,heads=16,batch=4,seqlen=4096,accuracy=fast,mask=causal_top_left",
       "dtype=e4m3,dtype_kv=e5m2,head_dim=72,heads=8/2,seqlen=1024,accuracy=fast,"
       "mask=causal_bottom_right,window=300:-",
       "dtype=e4m3,dtype_kv=e5m2,head_dim=256,heads=8,seqlen=1024,mask=causal_top_left,"
       "window=300:-",
       "dtype=e4m3,head_dim=128,heads=8,seqlen=4096,scale_block=128,v_layout=transposed",
       "dtype=e4m3,head_dim_qk=72,head_dim_v=40,heads=6/2,batch=1,seqlen_q=64,seqlen_kv=8192"});
}

TEST_F(PrefillSm90Fp8Compile, TransposingInsideIsFree) {
  for (const auto& [text, o_staging] :
       {std::pair{"dtype=e4m3,head_dim=128,heads=8,batch=32,seqlen=512,accuracy=fast", 1},
        std::pair{"dtype=e4m3,head_dim=256,heads=8,batch=32,seqlen=512,mask=causal_top_left,"
                  "accuracy=fast",
                  0},
        std::pair{"dtype=e4m3,head_dim=256,heads=8,batch=32,seqlen=512,mask=causal_top_left", 0}}) {
    const Problem p = parse_problem(text);
    Config c = prefill_sm90_fp8().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    c.set("transpose_inside", 1);
    c.set("o_staging", o_staging);
    ASSERT_EQ(prefill_sm90_fp8().space(spec_of(p), hopper()).broken(c), std::nullopt);
    EXPECT_EQ(testing::compile_fault(*compiler_, prefill_sm90_fp8(), spec_of(p), hopper(), c), "")
        << text_of(p, c);
  }
}

// A block lets the next grid start as soon as one of its threads does. That thread must have waited
// for the previous grid, because the next kernel reads Q, K and factors at once.
TEST_F(PrefillSm90Fp8Compile, TransposingBlocksWaitBeforeTheyLetTheNextGridStart) {
  for (const char* text : {"dtype=e4m3,head_dim=128,heads=8,seqlen=4096",
                           "dtype=e4m3,head_dim=128,heads=8,seqlen=4096,v_layout=transposed"}) {
    const Problem p = parse_problem(text);
    Config c = prefill_sm90_fp8().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    c.set("transpose_inside", 0);
    const std::string all =
        nvrtc_ptx(render(prefill_sm90_fp8(), spec_of(p), hopper(), c), hopper());
    const size_t entry = all.find("_transpose_v(");
    ASSERT_NE(entry, std::string::npos) << text;
    const std::string ptx = all.substr(entry, all.find("\n}", entry) - entry);
    const size_t wait = ptx.find("griddepcontrol.wait");
    const size_t start = ptx.find("griddepcontrol.launch_dependents");
    ASSERT_NE(start, std::string::npos) << text;
    ASSERT_LT(wait, start) << text;
    EXPECT_EQ(ptx.rfind("griddepcontrol.launch_dependents"), start) << text;
    const std::string between = ptx.substr(wait, start - wait);
    EXPECT_EQ(between.find("$L"), std::string::npos) << "not one basic block: " << between;
  }
}

}  // namespace
}  // namespace attune
