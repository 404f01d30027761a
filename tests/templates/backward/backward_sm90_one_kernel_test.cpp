// SPDX-License-Identifier: Apache-2.0
// backward_sm90_one_kernel without a device: shared memory, workspace, source, rules and defaults,
// with ordered and unordered sums. backward_test.cpp checks results.
#include <gtest/gtest.h>

#include <algorithm>

#include "generator/core/problem/visibility.hpp"
#include "generator/families/backward/sm90/gradient_kernel.hpp"
#include "tests/templates/backward/backward_sm90_cases.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::chosen_for;
using testing::expect_regions;
using testing::expect_workspace;
using testing::hopper;
using testing::kH200;
using testing::kOneKernel;
using testing::refusal_by;

// dS follows the rings, where panels are aligned. Places, tile numbers and their barriers come
// last.
TEST(BackwardSm90Layout, OneKernelHasRoomForDs) {
  for (const auto& [head_dim, step] : {std::pair{64, 128}, {128, 64}, {128, 128}}) {
    const BackwardSm90Tile tile{128, step, 2, 2, head_dim, head_dim, true, true, kOneKernelDsSlots};
    const BackwardOneKernelLayout l = backward_one_kernel_layout(tile);
    expect_regions(testing::one_kernel_regions_of(tile), l.bytes);
    expect_regions(testing::dq_warpgroup_regions_of(tile),
                   backward_dq_warpgroup_bytes(l, kOneKernelDsSlots));
    if (step * head_dim == 8192) {
      EXPECT_LE(l.bytes, hopper().shared_bytes_per_block);
    }
  }
}

// If blocks add in any order, dQ of a step is the last region. dK of a tile uses the same memory,
// where TMA expects it swizzled.
TEST(BackwardSm90Layout, DqOfAStepHasRoomIfBlocksAddInAnyOrder) {
  for (const auto& [head_dim, rows] :
       {std::pair{16, 128}, {32, 128}, {64, 128}, {128, 64}, {128, 80}, {96, 80}}) {
    const BackwardSm90Tile tile{128, rows, 2, 2, head_dim, head_dim, true, true, kUnorderedDsSlots};
    const BackwardOneKernelLayout others = backward_one_kernel_layout(tile);
    const BackwardUnorderedLayout l = backward_unordered_layout(others, rows, head_dim);
    EXPECT_EQ(kDqCopiers * l.part_bytes, rows * (head_dim == 96 ? 128 : head_dim) * 4);
    expect_regions(testing::unordered_regions_of(tile), l.bytes);
    EXPECT_LE(l.bytes, hopper().shared_bytes_per_block);
  }
}

// Statistics that a thread loads before it waits must fit into registers besides the accumulators.
// They include delta of the first 16 rows of a step.
TEST(BackwardSm90Layout, StatisticsThatAreLoadedEarlyHaveRegisters) {
  for (const auto& [head_dim, rows] :
       {std::pair{16, 128}, {32, 128}, {64, 128}, {128, 64}, {128, 80}}) {
    const EarlyPairs early = backward_early(rows, 2 * head_dim, 0);
    EXPECT_GE(early.delta, 2);
    EXPECT_LE(early.l2, rows / 8);
    EXPECT_LE(rows + head_dim + 2 * early.l2, 228);  // S, dP, gradients
    EXPECT_LE(rows + head_dim + 2 * early.delta, 224);
  }
  EXPECT_EQ(backward_early(80, 256, 0).l2, 10);  // all
  EXPECT_EQ(backward_early(80, 256, 0).delta, 8);
  EXPECT_EQ(backward_early(128, 96, 0).delta_beside_p, 8);
  EXPECT_EQ(backward_early(64, 1024, 0).l2, 0);  // accumulators exceed all registers
  // Delta of the first 16 rows also fits with dropout.
  EXPECT_EQ(backward_early(80, 256, backward_dropout_registers(80)).delta, 2);
  EXPECT_EQ(backward_early(128, 128, backward_dropout_registers(128)).delta, 7);
}

// Checks which half of a step's dQ each warpgroup computes, and the columns of that product.
TEST(BackwardSm90Layout, WarpgroupsShareDqByTheRowsOfAStep) {
  EXPECT_EQ(backward_dq_half(64), DqHalf::kColumns);
  EXPECT_EQ(backward_dq_half(128), DqHalf::kRows);
  EXPECT_EQ(backward_dq_half(80), DqHalf::kTransposed);
  EXPECT_EQ(backward_one_kernel_columns(64, 128), 64);
  EXPECT_EQ(backward_one_kernel_columns(128, 64), 64);
  EXPECT_EQ(backward_one_kernel_columns(80, 128), 80);
  for (const auto& [head_dim, rows] : {std::pair{64, 128}, {128, 64}, {128, 80}})  // all of dQ
    EXPECT_EQ(2 * 64 * backward_one_kernel_columns(rows, head_dim), rows * head_dim);
}

// Besides sums of rows, the workspace holds only dQ in fp32 and the counts of turns.
TEST(BackwardSm90Launch, OneKernelHasOnlyDqInTheWorkspace) {
  const Problem p =
      parse_problem("op=attention_backward,heads=6/2,batch=3,seqlen=1000,head_dim=128");
  Config config = parse_config(kOneKernel);
  config.set("split_heads", 0);
  EXPECT_EQ(backward_sm90_one_kernel().space(spec_of(p), hopper()).broken(config), std::nullopt);
  const LaunchPlan plan = backward_sm90_one_kernel().launch(spec_of(p), config, shape_of(p), kH200);
  ASSERT_EQ(plan.workspace.size(), 3u);
  expect_workspace(plan);
  // The kernel's formula of the place of dQ.
  EXPECT_EQ(plan.workspace[1].offset, backward_sums_bytes(18, backward_sm90_rows(1000, 128, 64)));
  EXPECT_EQ(plan.workspace[0].count(), 2LL * 18 * backward_sm90_rows(1000, 128, 64));
  EXPECT_EQ(plan.workspace[1].count(), 18LL * 16 * 64 * 128);
  EXPECT_EQ(plan.workspace[2].count(), 18 * 16 + 1);  // per block of rows, and for drawn tiles
  EXPECT_EQ(plan.steps.back().grid_x, 18u * 16);
  EXPECT_EQ(plan.main().num_tiles, 8 * 2 * 3);
  EXPECT_EQ(plan.main().grid_x, 8u * 2 * 3);
}

// If blocks add in any order, the fp32 dQ of each block of rows is followed by claim words.
TEST(BackwardSm90Launch, AnUnorderedKernelHasClaimWordsAfterDq) {
  const Problem p =
      parse_problem("op=attention_backward,heads=6/2,batch=3,seqlen=1000,head_dim=128");
  Config config = parse_config(kOneKernel);
  const auto bytes_of_dq = [&] {
    const LaunchPlan plan =
        backward_sm90_one_kernel().launch(spec_of(p), config, shape_of(p), kH200);
    return plan.workspace[1].count() * 4;
  };
  EXPECT_EQ(bytes_of_dq(), 18LL * 16 * 64 * 128 * 4);
  config.set("ordered", 0);
  EXPECT_EQ(bytes_of_dq(), 18LL * 16 * (64 * 128 * 4 + 128));
}

// Only kernels that multiply half of a step's rows have these products in their text.
TEST(BackwardSm90Source, HasProductsOfHalvesOnlyIfItMultipliesThem) {
  const auto has_halves = [](int head_dim, int step_rows) {
    const Problem p = parse_problem("op=attention_backward,heads=4,seqlen=1000,head_dim=" +
                                    std::to_string(head_dim));
    Config config = parse_config(kOneKernel);
    config.set("key_block_m", step_rows);
    EXPECT_EQ(backward_sm90_one_kernel().space(spec_of(p), hopper()).broken(config), std::nullopt);
    const std::string text = render(backward_sm90_one_kernel(), spec_of(p), hopper(), config).text;
    const bool products = text.find("void wgmma_p_dout_half(") != std::string::npos;
    EXPECT_EQ(text.find("class StepsInHalves : public") != std::string::npos, products) << head_dim;
    return products;
  };
  EXPECT_TRUE(has_halves(64, 128));
  EXPECT_FALSE(has_halves(32, 128));
  EXPECT_FALSE(has_halves(128, 64));
}

// A separate warpgroup computes dQ if steps have 64 rows and head dims are at most 64. Otherwise
// the two warpgroups of keys do.
TEST(BackwardSm90Launch, ASeparateWarpgroupComputesDqOfSmallHeads) {
  const DqWarpgroupRegisters r = kDqWarpgroupRegisters;
  EXPECT_LE(2 * r.keys + r.dq + r.producer, 4 * r.launch);
  const auto threads = [&r](const char* dims) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,heads=4,seqlen=1000,") + dims);
    const Config config = parse_config(kOneKernel);
    if (auto why = backward_sm90_one_kernel().refuses(spec_of(p), hopper())) return *why;
    EXPECT_EQ(backward_sm90_one_kernel().space(spec_of(p), hopper()).broken(config), std::nullopt);
    const std::string text = render(backward_sm90_one_kernel(), spec_of(p), hopper(), config).text;
    const unsigned all =
        backward_sm90_one_kernel().launch(spec_of(p), config, shape_of(p), kH200).main().threads;
    EXPECT_EQ(text.find("class DqConsumer") != std::string::npos, all == 512) << dims;
    EXPECT_EQ(backward_sm90_one_kernel().resources(spec_of(p), hopper(), config).max_registers,
              all == 512 ? r.launch : 168);
    return std::to_string(all);
  };
  EXPECT_EQ(threads("head_dim=64"), "512");
  EXPECT_EQ(threads("head_dim_qk=32,head_dim_v=48"), "512");
  EXPECT_EQ(threads("head_dim=128"), "384");
  const auto broken_step = [](const char* dims) {
    const Problem p = parse_problem(std::string("op=attention_backward,heads=4,seqlen=9,") + dims);
    const SearchSpace space = backward_sm90_one_kernel().space(spec_of(p), hopper());
    return space.broken(parse_config(kOneKernel)).value_or("");
  };
  EXPECT_EQ(broken_step("head_dim=48"), "key_block_m 64 needs a multiple of 32 as head_dim_qk");
  EXPECT_EQ(broken_step("head_dim_qk=64,head_dim_v=128"),
            "key_block_m 64 needs a multiple of 128 as head_dim_qk");
}

// Drawing kernels start at most one block per multiprocessor; other kernels start one per tile.
TEST(BackwardSm90Launch, OneKernelDrawsTilesOrStartsABlockForEach) {
  const Problem p =
      parse_problem("op=attention_backward,heads=64,batch=3,seqlen=1000,head_dim=128");
  Config config = parse_config(kOneKernel);
  const auto grid = [&] {
    return backward_sm90_one_kernel().launch(spec_of(p), config, shape_of(p), kH200).main().grid_x;
  };
  EXPECT_EQ(grid(), 8u * 64 * 3);
  config.set("scheduler", 2);
  EXPECT_EQ(grid(), 132u);
}

// Defaults as measured on an H100. With ordered additions, one kernel serves head dim 64, for as
// many heads at a time as fit in L2. It serves head dim 128 for long rows at most. Unordered
// additions are faster, except for narrow windows, which the kernel of a band serves.
TEST(BackwardSm90Default, IsOneKernelWhereMeasuredFastest) {
  const auto choice = [](int head_dim, int seqlen, const std::string& more) {
    return chosen_for(parse_problem(
        "op=attention_backward,heads=" + std::to_string(2048 / head_dim) +
        ",batch=" + std::to_string(16384 / seqlen) + ",seqlen=" + std::to_string(seqlen) +
        ",head_dim=" + std::to_string(head_dim) + more));
  };
  const auto expect = [&](int head_dim, int seqlen, int heads) {
    const auto [name, c] = choice(head_dim, seqlen, ",deterministic=1");
    EXPECT_EQ(name, "backward_sm90_one_kernel") << head_dim << " " << seqlen;
    EXPECT_EQ(c.get("section_heads", 0), heads) << head_dim << " " << seqlen << " " << c.to_text();
    EXPECT_EQ(c.get("scheduler", 0), 2) << head_dim << " " << seqlen << " " << c.to_text();
    EXPECT_EQ(c.get("key_block_m", 0), 64) << head_dim << " " << seqlen << " " << c.to_text();
  };
  expect(64, 16384, 4);
  expect(64, 1024, 32);
  EXPECT_EQ(choice(128, 1024, ",deterministic=1").name, "backward_sm90");
  for (const int head_dim : {64, 128})
    for (const char* mask : {"", ",mask=causal_bottom_right"}) {
      const auto [name, c] = choice(head_dim, 16384, mask);
      EXPECT_EQ(name, "backward_sm90_one_kernel") << head_dim << mask;
      EXPECT_EQ(c.get("ordered", 1), 0) << c.to_text();
      EXPECT_EQ(c.get("key_block_m", 0), head_dim == 64 ? 128 : 80) << c.to_text();
    }
  EXPECT_EQ(choice(64, 8192, ",mask=causal_bottom_right,window=127:0").name, "backward_sm90_band");
}

// Blocks that add in any order never wait for turns, so their text has no turns, and the first
// block stores instead of adding.
TEST(BackwardSm90Source, HasTurnsOnlyIfBlocksAddInOrder) {
  for (const char* dims : {"head_dim=64", "head_dim=128"}) {
    const Problem p =
        parse_problem(std::string("op=attention_backward,heads=4,seqlen=1000,") + dims);
    Config config = parse_config(kOneKernel);
    for (const int ordered : {1, 0}) {
      config.set("ordered", ordered);
      if (p.head_dim_qk == 64 && ordered == 0) config.set("key_block_m", 128);
      EXPECT_EQ(backward_sm90_one_kernel().space(spec_of(p), hopper()).broken(config),
                std::nullopt);
      const std::string text =
          render(backward_sm90_one_kernel(), spec_of(p), hopper(), config).text;
      EXPECT_EQ(text.find("await_turn(OneKernelWorkspace") != std::string::npos, ordered == 1)
          << dims;
      EXPECT_EQ(text.find("end_claim(word(") != std::string::npos, ordered == 0) << dims;
      EXPECT_EQ(text.find("bulk_add(rows(") != std::string::npos, ordered == 0) << dims;
    }
  }
}

TEST(BackwardSm90Space, OneKernelRefusesIllegalConfigs) {
  const Problem p = parse_problem("op=attention_backward,head_dim=128,heads=8,seqlen=4096");
  const SearchSpace space = backward_sm90_one_kernel().space(spec_of(p), hopper());
  Config c = parse_config(kOneKernel);
  const auto broken = [&](const char* knob, int64_t value) {
    Config other = c;
    other.set(knob, value);
    return space.broken(other).value_or("");
  };
  EXPECT_EQ(broken("key_block_m", 80),
            "key_block_m is 80; must be 64 or 128 (any with a head_dim_qk of 65 to 128 and ordered "
            "0)");
  c.set("ordered", 0);
  EXPECT_EQ(broken("key_block_m", 80), "");  // dQ^T by 64 of 128 columns
  EXPECT_NE(broken("key_block_m", 96).find("accumulators take"), std::string::npos);
  const Problem small = parse_problem("op=attention_backward,head_dim=64,heads=8,seqlen=4096");
  const auto broken_small = [&](int rows) {
    c.set("key_block_m", rows);
    return backward_sm90_one_kernel().space(spec_of(small), hopper()).broken(c).value_or("");
  };
  EXPECT_EQ(broken_small(128), "");
  EXPECT_EQ(broken_small(64), "key_block_m 64 needs a multiple of 128 as head_dim_qk");
  EXPECT_NE(broken_small(80).find("must be 64 or 128"), std::string::npos);
  // Only unordered sums (ordered 0) serve dropout.
  const Problem dropped = parse_problem(to_text(p) + ",dropout=0.1");
  const SearchSpace dropped_space = backward_sm90_one_kernel().space(spec_of(dropped), hopper());
  c = parse_config(kOneKernel);
  EXPECT_NE(dropped_space.broken(c), std::nullopt);
  c.set("ordered", 0);
  EXPECT_EQ(dropped_space.broken(c), std::nullopt);
}

TEST(BackwardSm90Space, OneKernelRefusesProblemsItCannotServe) {
  const auto refusal = [](const std::string& more) {
    return refusal_by(backward_sm90_one_kernel(), "op=attention_backward,heads=8,seqlen=64" + more);
  };
  EXPECT_EQ(refusal(",head_dim=128"), "");
  EXPECT_EQ(refusal(",head_dim=128,dropout=0.1"), "");
  EXPECT_NE(refusal(",head_dim=128,dropout=0.1,deterministic=1").find("deterministic is 1"),
            std::string::npos);
  EXPECT_NE(refusal(",head_dim=72").find("head_dim_qk is 72"), std::string::npos);
  EXPECT_NE(refusal(",head_dim=256").find("no step fits"), std::string::npos);
  EXPECT_NE(refusal(",head_dim=128,gradients=qk").find("gradients"), std::string::npos);
  EXPECT_NE(refusal(",head_dim=128,accumulate=1").find("accumulate"), std::string::npos);
}

// For deterministic problems, every config that tuning may choose gives equal bits. A kernel that
// adds in order has the same text for these problems as for others.
TEST(BackwardSm90Space, DeterministicProblemsKeepTheOrderOfDq) {
  const std::string text = "op=attention_backward,head_dim=128,heads=8,seqlen=4096";
  const KernelSpec plain = spec_of(parse_problem(text)),
                   asked = spec_of(parse_problem(text + ",deterministic=1"));
  const auto orders = [](const KernelSpec& spec) {
    const SearchSpace space = backward_sm90_one_kernel().space(spec, hopper());
    std::vector<int64_t> values;
    for (const Knob& knob : space.knobs())
      if (knob.name == "ordered") values = knob.values;
    return values;
  };
  EXPECT_EQ(orders(plain), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(orders(asked), std::vector<int64_t>{1});
  Config c = parse_config(kOneKernel);
  const auto code = [&c](const KernelSpec& spec) {
    return source_digest(render(backward_sm90_one_kernel(), spec, hopper(), c));
  };
  EXPECT_EQ(backward_sm90_one_kernel().space(asked, hopper()).broken(c), std::nullopt);
  EXPECT_EQ(code(asked), code(plain));
  c.set("ordered", 0);
  EXPECT_EQ(backward_sm90_one_kernel().space(plain, hopper()).broken(c), std::nullopt);
  EXPECT_NE(backward_sm90_one_kernel().space(asked, hopper()).broken(c), std::nullopt);
}

}  // namespace
}  // namespace attune
