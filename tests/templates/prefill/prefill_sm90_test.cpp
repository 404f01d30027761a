// SPDX-License-Identifier: Apache-2.0
// prefill_sm90 without a device: its shared-memory layout and register plan, the search space and
// default configs, the launch plan, the cost model's parts (cost_rank_test has its order), and what
// NVRTC says of a few configs (skips aloud without NVRTC).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/families.hpp"
#include "generator/families/prefill/sm90/cost.hpp"
#include "generator/families/prefill/sm90/rules.hpp"
#include "generator/score/language/user_program.hpp"
#include "templates/shared/layouts/prefill_sm90_splits.h"
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
      "bf16", {"head_dim=16", "head_dim=64", "head_dim=72", "head_dim=96", "head_dim=128",
               "head_dim=192", "head_dim=256", "head_dim_qk=192,head_dim_v=128",
               "head_dim_qk=40,head_dim_v=256", "head_dim_qk=256,head_dim_v=16"});
}

TEST(PrefillSm90Layout, RegionsFollowEachOtherAndTilesKeepTheSwizzlePhase) {
  for (const int block_m : {64, 128, 192, 256})
    for (const int kv_ring : {0, 3, 5})
      for (const int o_staging : {0, 1}) {
        const PrefillSm90Config c{block_m, 80, 1, 2, kv_ring, 1, o_staging, 72, 200};
        expect_regions(regions_of(c), prefill_sm90_layout(c).bytes);
      }
}

// More registers than the pool holds would hang the block in setmaxnreg.
TEST(PrefillSm90Registers, NeverExceedThePoolOfTheLaunch) {
  for (int warpgroups = 1; warpgroups <= 4; ++warpgroups)
    for (int ctas = 1; ctas <= 3; ++ctas) {
      const PrefillSm90Registers r = prefill_sm90_registers(warpgroups, ctas);
      EXPECT_LE((warpgroups + 1) * kWarpgroupThreads * ctas * r.launch, hopper().registers_per_sm);
      if (!r.moved) continue;
      EXPECT_LE(warpgroups * r.consumer + r.producer, (warpgroups + 1) * r.launch)
          << warpgroups << " " << ctas;
      EXPECT_GE(r.producer, 24);
      EXPECT_EQ(r.consumer % 8 + r.producer % 8, 0);
    }
}

TEST(PrefillSm90Space, DefaultsAreLegalAndEveryLegalConfigFitsTheMachine) {
  for (const Problem& p : problems()) {
    const KernelSpec spec = spec_of(p);
    const SearchSpace space = prefill_sm90().space(spec, hopper());
    const Config chosen = prefill_sm90().default_config(spec, hopper(), shape_of(p), kH200);
    EXPECT_EQ(space.broken(chosen), std::nullopt) << text_of(p, chosen);
    if (p.seqlen_q != 1) continue;  // the space does not depend on lengths
    const std::vector<Config> all = space.enumerate();
    ASSERT_GE(all.size(), 40u) << to_text(p);
    for (size_t i = 0; i < all.size(); i += 17) {
      const Resources r = prefill_sm90().resources(spec, hopper(), all[i]);
      const PrefillSm90Config c = sm90_layout_config(spec, all[i]);
      expect_regions(regions_of(c), prefill_sm90_layout(c).bytes);
      EXPECT_LE(prefill_sm90_layout(c).bytes, r.shared_bytes) << text_of(p, all[i]);
      EXPECT_LE(r.shared_bytes, hopper().shared_bytes_per_block) << text_of(p, all[i]);
      EXPECT_LE(r.min_blocks_per_sm * (r.shared_bytes + 1024), hopper().shared_bytes_per_sm)
          << text_of(p, all[i]);
    }
  }
}

TEST(PrefillSm90Space, RefusesWithAReason) {
  KernelSpec spec = spec_of(parse_problem("dtype=bf16,head_dim=128,heads=8,seqlen=64"));
  EXPECT_EQ(prefill_sm90().refuses(spec, hopper()), std::nullopt);
  EXPECT_NE(prefill_sm90().refuses(spec, parse_arch("sm_90")), std::nullopt);
  EXPECT_NE(prefill_sm90().refuses(spec, parse_arch("sm_100")), std::nullopt);
  spec.dtype_q = spec.dtype_kv = spec.dtype_o = Dtype::kFp32;
  EXPECT_NE(prefill_sm90().refuses(spec, hopper()), std::nullopt);
}

TEST(PrefillSm90Space, SentencesNameTheRule) {
  const Problem p = parse_problem("dtype=bf16,head_dim=128,heads=8,seqlen=4096");
  const SearchSpace space = prefill_sm90().space(spec_of(p), hopper());
  Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  c.set("block_m", 256);
  c.set("block_n", 128);
  EXPECT_NE(space.broken(c).value_or("").find("registers"), std::string::npos);
  c.set("block_m", 128);
  c.set("kv_ring", 0);
  c.set("kv_slots", 3);
  c.set("o_staging", 1);
  EXPECT_NE(space.broken(c).value_or("").find("shared memory"), std::string::npos);
}

// Diagonal terms replace a score stage, and need memory after the layout for each slot of K.
TEST(PrefillSm90Diagonals, StandBeforeQKWhereATileIsOfOneHeadAndKHasSlotsOfItsOwn) {
  for (const char* text : {"alibi=1", "relative_bias=bf16", "relative_bias=fp32,documents=1"}) {
    const Problem p = parse_problem(
        std::string("dtype=bf16,head_dim=128,heads=8/2,seqlen=2000,mask=causal_bottom_right,") +
        text);
    const KernelSpec spec = spec_of(p);
    for (const int heads : {1, 4})
      for (const int ring : {0, 3, 5}) {
        Config c = prefill_sm90().default_config(spec, hopper(), shape_of(p), kH200);
        for (const auto& [knob, value] :
             {std::pair{"block_m", 128}, {"block_n", 64}, {"kv_ring", ring}, {"pack_heads", heads}})
          c.set(knob, value);
        const std::string source = render(prefill_sm90(), spec, hopper(), c).text;
        const bool before = heads == 1 && ring == 0;
        EXPECT_EQ(source.find("kDiagonalTerms = true") != std::string::npos, before);
        EXPECT_EQ(source.find("kScored = true") != std::string::npos, !before);
        const PrefillSm90Layout layout = prefill_sm90_layout(sm90_layout_config(spec, c));
        const unsigned shared =
            prefill_sm90().launch(spec, c, shape_of(p), kH200).main().shared_bytes;
        if (!before) continue;
        EXPECT_EQ(layout.k_slots, 2);
        EXPECT_GE(shared,
                  static_cast<unsigned>(layout.bytes + layout.k_slots * (8 * (128 + 64) + 24)))
            << text_of(p, c);
      }
  }
}

TEST(PrefillSm90Diagonals, AreNotOfOtherPrograms) {
  for (const char* text :
       {"bf16,softcap=20", "bf16,softcap=20,alibi=1", "bf16,bias=bf16", "bf16"}) {
    const Problem p =
        parse_problem(std::string("head_dim=128,heads=8/8,seqlen=2000,mask=none,dtype=") + text);
    const Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    EXPECT_EQ(render(prefill_sm90(), spec_of(p), hopper(), c).text.find("kDiagonalTerms = true"),
              std::string::npos)
        << text;
  }
}

// The default's tiles lie within the blocks that a mask program divides positions into.
TEST(PrefillSm90Space, DefaultsKeepTilesWithinTheBlocksOfAProgram) {
  for (const auto& [rows, keys] : {std::pair(128, 128), std::pair(256, 64), std::pair(128, 256)}) {
    Problem p = parse_problem("dtype=bf16,head_dim=128,heads=8/8,seqlen=8192,mask=none");
    p.scores.mask_mod = read_user_program(fmt::format("// capture seen: uint8[2]\nreturn "
                                                      "seen[q_idx / {}][kv_idx / {}] != 0;",
                                                      rows, keys),
                                          score::Kind::kMask, "mask_mod")
                            .digest;
    const Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    EXPECT_EQ(rows % c.at("block_m"), 0) << text_of(p, c);
    EXPECT_EQ(keys % c.at("block_n"), 0) << text_of(p, c);
  }
}

std::vector<int64_t> pack_heads_of(const std::string& heads) {
  const Problem p = parse_problem("dtype=bf16,head_dim=128,seqlen=64,heads=" + heads);
  const SearchSpace space = prefill_sm90().space(spec_of(p), hopper());
  for (const Knob& knob : space.knobs())
    if (knob.name == "pack_heads") return knob.values;
  return {};
}

TEST(PrefillSm90Space, PacksTheMostHeadsThatDivideAGroupAndAWarpgroupOrTheWholeGroup) {
  using Values = std::vector<int64_t>;
  EXPECT_EQ(pack_heads_of("8/8"), Values({1}));
  EXPECT_EQ(pack_heads_of("7/1"), Values({1, 8}));
  EXPECT_EQ(pack_heads_of("12/2"), Values({1, 2, 8}));
  EXPECT_EQ(pack_heads_of("65/1"), Values({1}));  // no tile holds them
  EXPECT_EQ(pack_heads_of("32/8"), Values({1, 4}));
  EXPECT_EQ(pack_heads_of("128/1"), Values({1, 64}));
}

TEST(PrefillSm90Launch, PackedTilesCoverFewerRowsOfMoreHeads) {
  const Problem p = parse_problem("dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=1000");
  Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  c.set("block_m", 128);
  c.set("pack_heads", 4);
  const LaunchPlan plan = prefill_sm90().launch(spec_of(p), c, shape_of(p), kH200);
  EXPECT_EQ(plan.main().num_tiles, 32 * 8 * 2);  // 32 rows of 4 heads
  for (const int map : {0, 3}) {                 // Q and O
    EXPECT_EQ(plan.main().tensor_maps[map].box_rows, 16);
    EXPECT_EQ(plan.main().tensor_maps[map].box_heads, 4);
  }
  EXPECT_EQ(plan.main().tensor_maps[1].box_heads, 1);
}

TEST(PrefillSm90Launch, AGroupThatDividesNoTileSharesOneBesideIdlePlaces) {
  const Problem p = parse_problem("dtype=bf16,head_dim=128,heads=28/4,batch=2,seqlen=1000");
  Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  c.set("block_m", 128);
  c.set("pack_heads", 8);
  const LaunchPlan plan = prefill_sm90().launch(spec_of(p), c, shape_of(p), kH200);
  EXPECT_EQ(plan.main().num_tiles, 63 * 4 * 2);  // 16 rows of 7 heads
  for (const int map : {0, 3}) {
    EXPECT_EQ(plan.main().tensor_maps[map].box_rows, 8);
    EXPECT_EQ(plan.main().tensor_maps[map].box_heads, 7);
  }
}

TEST(PrefillSm90Launch, FillsTheDeviceOnceOrStartsOneBlockPerTile) {
  const Problem p = parse_problem(
      "dtype=bf16,head_dim=128,heads=8/2,batch=4,seqlen=1000,mask=causal_bottom_right");
  Config c = parse_config(
      "block_m=128,block_n=128,blocks_per_sm=1,kv_slots=2,kv_ring=0,overlap=1,ping_pong=0,"
      "scheduler=2,"
      "l2_section_mb=32,o_staging=1,row_max=0,"
      "pack_heads=1,kv_splits=1");
  LaunchPlan plan = prefill_sm90().launch(spec_of(p), c, shape_of(p), kH200);
  EXPECT_EQ(plan.main().num_tiles, 8 * 8 * 4);
  EXPECT_EQ(plan.main().grid_x, 132u);
  EXPECT_EQ(plan.main().threads, 384u);
  EXPECT_GE(plan.zeroed_bytes, 4);
  EXPECT_EQ(plan.main().tensor_maps.size(), 4u);
  EXPECT_TRUE(plan.main().early);
  c.set("scheduler", 0);
  c.set("kv_splits", 4);
  plan = prefill_sm90().launch(spec_of(p), c, shape_of(p), kH200);
  EXPECT_EQ(plan.main().grid_x, 4u * 256u);
  EXPECT_EQ(plan.main().num_tiles, 4 * 256);
  EXPECT_EQ(plan.main().cluster, 4u);
  EXPECT_TRUE(plan.workspace.empty());  // parts stay in the shared memory of the cluster
  c.set("kv_splits", 32);
  plan = prefill_sm90().launch(spec_of(p), c, shape_of(p), kH200);
  EXPECT_EQ(plan.main().grid_x, 32u * 256u);
  EXPECT_EQ(plan.main().cluster, 8u);
  EXPECT_EQ(plan.zeroed_bytes, 256 * 2 * 8 * 4);
  ASSERT_EQ(plan.workspace.size(), 2u);
  EXPECT_EQ(plan.workspace[1].count(), 32ll * 256 * 2 * (8 + 4) * 128);
  EXPECT_EQ(plan.workspace[1].offset, split_ticket_bytes(256, 2, 8));  // the kernel's formula
  expect_workspace(plan);
}

TEST(PrefillSm90Launch, SplitsFormClustersAndShareTheColumns) {
  for (const int splits : {2, 4, 6, 8, 12, 16, 32}) {
    const int cluster = split_cluster(splits);
    EXPECT_LE(cluster, 8) << "the most blocks of a cluster that every device takes";
    EXPECT_EQ(splits % cluster, 0);
    for (const int head_dim : {8, 64, 80, 128, 256})
      EXPECT_GE(split_slice_chunks(head_dim, cluster) * cluster * 8, head_dim);
  }
}

// The step that makes lists splits a block's number (map_place, cuda/parts/block_lists.cuh). A
// tile finds its list by steps (cuda/parts/block_list.cuh). Both must mean the same list, also
// if tiles are slices of V's columns.
TEST(PrefillSm90Launch, TilesFindTheListsThatAreMadeForThem) {
  for (const char* heads : {"head_dim=128,heads=6/3", "head_dim_qk=576,head_dim_v=512,heads=4/1"})
    for (const int slices : {1, 2, 3}) {
      const Problem p = parse_problem(
          std::string("dtype=bf16,batch=3,seqlen_q=300,seqlen_kv=500,mask_tensor=1,") + heads);
      Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
      if (c.has("v_slices")) c.set("v_slices", slices);
      const LaunchPlan plan = prefill_sm90().launch(spec_of(p), c, shape_of(p), kH200);
      const BlockMapArgs map = plan.map_args(nullptr, {});
      const auto packed = static_cast<int>(c.at("pack_heads"));
      const int rows = static_cast<int>(p.seqlen_q * packed / c.at("block_m")) + 1;
      const int head_tiles = p.num_heads_q / std::min(packed, p.num_heads_q / p.num_heads_kv);
      EXPECT_EQ(map.num_lists, rows * head_tiles * p.batch) << heads << " " << slices;
      for (int number = 0; number < map.num_lists; ++number)
        ASSERT_EQ(number / rows / head_tiles * map.batch_step +
                      number / rows % head_tiles * map.head_step + number % rows,
                  number)
            << heads << " " << slices;
    }
}

TEST(PrefillSm90Cost, ChargesOneTilePerBlockOnlyWhereBlocksWouldTakeSeveral) {
  const auto cost_of_one_tile_over_dynamic = [](const char* batch) {
    const Problem p =
        parse_problem(std::string("dtype=bf16,head_dim=256,heads=10,seqlen_q=700,seqlen_kv=3000,"
                                  "mask=causal_bottom_right,batch=") +
                      batch);
    Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    const auto cost = [&](int scheduler) {
      c.set("scheduler", scheduler);
      return prefill_sm90().predicted_cost(spec_of(p), hopper(), c, shape_of(p), kH200);
    };
    return cost(0) / cost(2);
  };
  EXPECT_LE(cost_of_one_tile_over_dynamic("2"), 1.0);  // 120 tiles on 132 multiprocessors
  EXPECT_GT(cost_of_one_tile_over_dynamic("20"), 1.01);
}

TEST(PrefillSm90Cost, CountsTheBlocksThatRowsSee) {
  for (const char* mask : {"none", "none,window=100:30", "causal_top_left", "causal_bottom_right",
                           "causal_bottom_right,window=70:-"})
    for (const int64_t seqlen_kv : {1, 63, 500, 1300}) {
      Problem p = parse_problem(
          std::string("dtype=bf16,head_dim=64,heads=1,seqlen_q=600,seqlen_kv=500,mask=") + mask);
      p.seqlen_kv = seqlen_kv;
      const int64_t offset = p.mask == Mask::kCausalTopLeft ? 0 : seqlen_kv - p.seqlen_q;
      for (int64_t first = 0; first < 600; first += 128) {
        int64_t lowest = seqlen_kv, highest = -1;
        for (int64_t row = first; row < std::min<int64_t>(first + 128, 600); ++row)
          for (int64_t column = 0; column < seqlen_kv; ++column) {
            const int64_t from_diagonal = column - row - offset;
            if (p.mask != Mask::kNone && from_diagonal > 0) continue;
            if (p.window_left >= 0 && -from_diagonal > p.window_left) continue;
            if (p.window_right >= 0 && from_diagonal > p.window_right) continue;
            lowest = std::min(lowest, column);
            highest = std::max(highest, column);
          }
        const int64_t origin = p.window_left < 0 ? lowest / 64 * 64 : lowest;
        const int64_t expected = highest < lowest ? 0 : (highest - origin) / 64 + 1;
        EXPECT_EQ(sm90_visible_blocks(spec_of(p), shape_of(p), first, 128, 64), expected)
            << to_text(p) << " row " << first;
      }
    }
}

TEST(PrefillSm90Cost, PrefersSplitsWhenTilesAreFew) {
  const Problem p = parse_problem(
      "dtype=bf16,head_dim=128,heads=8/"
      "1,batch=1,seqlen_q=256,seqlen_kv=32768,mask=causal_bottom_right");
  const Config chosen = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
  ASSERT_GE(chosen.at("kv_splits"), 4)
      << chosen.to_text();  // 16 tiles of 128 rows on 132 multiprocessors; splits gave 7 times
  Config whole = chosen;
  whole.set("kv_splits", 1);
  EXPECT_LT(prefill_sm90().predicted_cost(spec_of(p), hopper(), chosen, shape_of(p), kH200),
            prefill_sm90().predicted_cost(spec_of(p), hopper(), whole, shape_of(p), kH200) / 4);
}

int64_t packed_by_default(const std::string& text) {
  const Problem p = parse_problem("dtype=bf16,heads=32/8,mask=causal_bottom_right," + text);
  return prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200).at("pack_heads");
}

// Two warpgroups of 64 rows each see 192 of the 256 keys that their tile visits. That is faster
// than tiles of 64 rows, which load K and V more often.
TEST(PrefillSm90Cost, CountsTheStepsThatWarpgroupsLeaveOut) {
  const Problem p = parse_problem(
      "dtype=bf16,head_dim=64,heads=64,seqlen=8192,mask=causal_bottom_right,window=128:0");
  const KernelSpec spec = spec_of(p);
  Config config = prefill_sm90().default_config(spec, hopper(), shape_of(p), kH200);
  config.set("block_m", 128);
  config.set("block_n", 64);
  const Shape shape = shape_of(p);
  const double slots = 132.0 * static_cast<double>(config.at("blocks_per_sm"));
  const double tiles = 64.0 * 8192 / 128;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kE4m3}) {
    KernelSpec either = spec;
    either.dtype_kv = dtype;
    const double of_one_clock = (sm90_launch_clocks(either, config, shape, kH200, 2000) -
                                 sm90_launch_clocks(either, config, shape, kH200, 1000)) /
                                1000;
    EXPECT_LT(of_one_clock * slots / tiles,
              0.95 * static_cast<double>(sm90_visible_blocks(either, shape, 4096, 128, 64)));
  }
}

TEST(PrefillSm90Cost, PacksHeadsWhereThatWasMeasuredToPay) {
  EXPECT_EQ(packed_by_default("head_dim=128,seqlen_q=1,seqlen_kv=8192"), 4);
  EXPECT_EQ(packed_by_default("head_dim=128,batch=2,seqlen=8192,window=1024:0"), 4);
  EXPECT_EQ(packed_by_default("head_dim=64,batch=8,seqlen=2048"), 4);
  EXPECT_EQ(packed_by_default("head_dim=128,batch=2,seqlen=2048"), 1);
  EXPECT_EQ(packed_by_default("head_dim=128,seqlen_q=512,seqlen_kv=8192,batch=4"), 1);
}

using PrefillSm90Compile = testing::HopperCompile;

TEST_F(PrefillSm90Compile, FirstCandidatesAreFree) {
  expect_free_defaults(
      prefill_sm90(),
      {"dtype=bf16,head_dim=64,heads=8,seqlen=4096,mask=causal_bottom_right",
       "dtype=fp16,head_dim=128,heads=8,seqlen=4096",
       "dtype=bf16,head_dim=256,heads=8,seqlen=1024,mask=causal_top_left,window=300:-",
       "dtype=bf16,head_dim_qk=72,head_dim_v=40,heads=6/2,batch=1,seqlen_q=64,seqlen_kv=8192"});
}

TEST_F(PrefillSm90Compile, TermsOfDiagonalsCompileInEveryPipeline) {
  const Problem p =
      parse_problem("dtype=bf16,head_dim=128,heads=8,seqlen=4096,mask=causal_bottom_right,alibi=1");
  for (const char* pipeline : {"block_m=128,block_n=128,kv_ring=0,row_max=0",
                               "block_m=192,block_n=80,kv_ring=0,kv_slots=2,row_max=1"}) {
    Config c = prefill_sm90().default_config(spec_of(p), hopper(), shape_of(p), kH200);
    const Config changed = parse_config(pipeline);
    for (const auto& [knob, value] : changed.knobs()) c.set(knob, value);
    EXPECT_EQ(testing::compile_fault(*compiler_, prefill_sm90(), spec_of(p), hopper(), c), "")
        << text_of(p, c);
  }
}

TEST_F(PrefillSm90Compile, TheTemplateStatesTheRulesItself) {
  const Problem p = parse_problem("dtype=bf16,head_dim=128,heads=8,seqlen=4096");
  const KernelSpec spec = spec_of(p);
  Source source = render(prefill_sm90(), spec, hopper(),
                         prefill_sm90().default_config(spec, hopper(), shape_of(p), kH200));
  const std::string knob = "constexpr int kBlockM = 128;";
  const size_t at = source.text.find(knob);
  ASSERT_NE(at, std::string::npos);
  source.text.replace(at, knob.size(), "constexpr int kBlockM = 320;");
  try {
    compiler_->compile(source, hopper());
    FAIL() << "compiled with five consumer warpgroups";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("block_m is 64 rows for each of 1 to 4 warpgroups"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace attune
