// SPDX-License-Identifier: Apache-2.0
// Compares every template on every available device with the float64 oracle: random specs, layouts,
// inputs and configs, and lengths at the edges of the config's tiles. non_finite_test.cpp tests NaN
// and infinity. Suites Cpu.* and Cuda.* are separate CTest entries.
//   ATTUNE_NUMERICS_SPECS=N   specs per template (default 6, 3 on a CPU)
//   ATTUNE_NUMERICS_SEED=N    first seed (default 1); a failure prints the seed that repeats it
#include "tests/templates/numerics/numerics_fixture.hpp"

namespace attune::testing {
namespace {

class Cpu : public Numerics {};
class Cuda : public Numerics {};

TEST_F(Cpu, EveryTemplateKeepsTheRule) {
  open("cpu");
  check_all(Target::kCpu);
}

TEST_F(Cuda, EveryTemplateKeepsTheRule) {
  open("cuda");
  check_all(Target::kCuda);
}

TEST_F(Cuda, OneRingOfSm90KeepsTheRuleWithAndWithoutOverlap) {
  open("cuda");
  for (const char* overlap : {"0", "1"})
    check_sm90(
        "head_dim=128,heads=4/2,mask=causal_bottom_right",
        std::string("blocks_per_sm=2,kv_ring=3,scheduler=2,l2_section_mb=32,overlap=") + overlap,
        "one ring");
}

// Relative bias and ALiBi are put into the accumulators before Q K, computed for each slot of K.
// Covers each scheduler, splits, recomputed scores, block lists, skipped steps, and warpgroups and
// rows that see no key. One ring for K and V, and packed heads, use another path.
TEST_F(Cuda, TermsOfDiagonalsOfSm90KeepTheRule) {
  open("cuda");
  const std::string causal = ",mask=causal_bottom_right";
  const char* trace = "diagonals";
  check_sm90("head_dim=64,heads=4/2,relative_bias=fp32", "block_m=256,ping_pong=1,row_max=1",
             trace);
  check_sm90("head_dim=128,heads=4/2,alibi=1" + causal,
             "block_m=192,block_n=80,kv_ring=3,scheduler=2,l2_section_mb=32", trace);
  check_sm90("head_dim=80,heads=4/2,alibi=1", "block_m=128,kv_ring=5,row_max=1,ping_pong=1", trace);
  check_sm90("head_dim=128,heads=4/2,alibi=1" + causal,
             "blocks_per_sm=2,kv_ring=3,overlap=0,scheduler=2,l2_section_mb=32", trace);
  for (const char* split : {"block_n=96,kv_splits=4,", "block_n=80,kv_ring=3,kv_splits=6,"})
    check_sm90("head_dim=128,heads=8/2,alibi=1" + causal,
               std::string(split) + "scheduler=0,l2_section_mb=32", trace);
  check_sm90("head_dim=64,heads=4/2,relative_bias=bf16,documents=1", "block_m=128,block_n=96",
             trace);
  check_sm90("head_dim=128,heads=4/2,relative_bias=bf16,documents=1",
             "block_m=128,kv_ring=3,row_max=1", trace);
  check_sm90("head_dim=72,heads=2/2,relative_bias=fp16,window=10:0" + causal,
             "block_m=192,kv_ring=3,row_max=1,scheduler=2,l2_section_mb=32", trace);
  check_sm90("head_dim=128,heads=8/2,alibi=1" + causal,
             "block_m=128,scheduler=2,l2_section_mb=32,pack_heads=4", trace);
  for (const char* lengths : {"seqlen_q=232,seqlen_kv=95,mask=causal_top_left,window=64:-",
                              "seqlen_q=700,seqlen_kv=200,mask=causal_bottom_right"})
    for (const char* ring : {"0", "3"})
      check_lengths("prefill_sm90",
                    std::string("dtype=bf16,head_dim=128,batch=2,heads=4/2,alibi=1,") + lengths,
                    "row_max=0,pack_heads=1",
                    std::string("block_m=128,l2_section_mb=32,kv_ring=") + ring);
}

// Programs with diagonal terms on the CPU, by default and in random configs.
TEST_F(Cpu, TermsOfDiagonalsKeepTheRule) {
  open("cpu");
  if (!device_) return;
  const KernelTemplate& t = template_by_name("prefill_cpu");
  std::mt19937_64 random(5);
  for (const char* text :
       {"head_dim=64,heads=4/2,relative_bias=fp32",
        "head_dim=72,heads=8/2,alibi=1,mask=causal_bottom_right",
        "head_dim=40,heads=2/2,relative_bias=bf16,alibi=1,mask=causal_top_left,window=64:-",
        "head_dim=64,heads=4/2,relative_bias=fp16,documents=1"}) {
    const Problem p = parse_problem(std::string("dtype=fp32,seqlen=200,") + text);
    const Arch arch = arch_for(*device_, t, spec_of(p));
    const std::vector<Config> legal = t.space(spec_of(p), arch).enumerate();
    check_config(t, p, t.default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts),
                 true, random, text);
    EXPECT_TRUE(check_config(t, p, legal[random() % legal.size()], false, random, text));
  }
}

// Covers every path of a row in a packed tile: 32, 16, 8, 4 and 1 rows per head, LSE and O through
// TMA and from registers, windows, recomputed scores, splits.
TEST_F(Cuda, PackedHeadsOfSm90KeepTheRule) {
  open("cuda");
  const std::string causal = ",mask=causal_bottom_right";
  check_sm90("head_dim=72,heads=4/2", "block_m=192,block_n=80,row_max=1,ping_pong=1,pack_heads=2",
             "packed");
  check_sm90("head_dim=128,heads=8/2,window=70:0" + causal,
             "block_m=128,block_n=96,scheduler=2,l2_section_mb=32,pack_heads=4", "packed");
  check_sm90(
      "head_dim=256,heads=8/1,mask=causal_top_left",
      "block_m=128,kv_ring=5,o_staging=0,row_max=1,scheduler=2,l2_section_mb=32,pack_heads=8",
      "packed");
  check_sm90("head_dim=128,heads=16/1" + causal,
             "block_n=96,scheduler=0,l2_section_mb=32,kv_splits=4,pack_heads=16", "packed");
  check_sm90("head_dim=64,heads=64/1" + causal,
             "blocks_per_sm=3,kv_slots=3,row_max=1,scheduler=2,l2_section_mb=32,pack_heads=64",
             "packed");
}

// Groups share a tile with idle rows. Covers the same paths, with 16, 8, 4 and 1 rows per head.
TEST_F(Cuda, IdleRowsOfSm90KeepTheRule) {
  open("cuda");
  const std::string causal = ",mask=causal_bottom_right";
  check_sm90("head_dim=72,heads=6/2", "block_m=192,block_n=80,row_max=1,ping_pong=1,pack_heads=4",
             "idle rows");
  check_sm90("head_dim=128,heads=14/2,window=70:0" + causal,
             "block_m=128,block_n=96,scheduler=2,l2_section_mb=32,pack_heads=8", "idle rows");
  check_sm90(
      "head_dim=256,heads=12/2,mask=causal_top_left",
      "block_m=128,kv_ring=5,o_staging=0,row_max=1,scheduler=2,l2_section_mb=32,pack_heads=8",
      "idle rows");
  check_sm90("head_dim=128,heads=9/1" + causal,
             "block_n=96,scheduler=0,l2_section_mb=32,kv_splits=4,pack_heads=16", "idle rows");
  check_sm90("head_dim=128,seqlen_q=1,seqlen_kv=600,heads=28/4",
             "block_n=96,scheduler=0,kv_splits=2,pack_heads=8", "idle rows");
  check_sm90("head_dim=64,heads=33/1" + causal,
             "blocks_per_sm=3,kv_slots=3,row_max=1,scheduler=2,l2_section_mb=32,pack_heads=64",
             "idle rows");
}

TEST_F(Cpu, LongSumsOf8BitsKeepTheMeanOfV) {
  open("cpu");
  check_all_long_sums();
}

TEST_F(Cuda, LongSumsOf8BitsKeepTheMeanOfV) {
  open("cuda");
  check_all_long_sums();
}

// Dropout depends on positions, not on tiles. Covers windows, whose blocks begin where cells begin,
// heads that share tiles, split keys, steps whose cells four lanes do not share evenly, and
// recomputed scores.
TEST_F(Cuda, DropoutOfSm90KeepsTheRule) {
  open("cuda");
  const std::string causal = ",dropout=0.25,mask=causal_bottom_right";
  const char* trace = "dropout";
  check_sm90("head_dim=64,heads=4/2,dropout=0.5", "block_m=192,block_n=128,row_max=1,ping_pong=1",
             trace);
  check_sm90("head_dim=72,heads=4/2,dropout=0.1", "block_n=80,blocks_per_sm=2,overlap=0", trace);
  check_sm90("head_dim=128,heads=4/2,window=70:0" + causal,
             "block_m=192,block_n=80,kv_ring=3,scheduler=2,l2_section_mb=32", trace);
  check_sm90("head_dim=128,heads=8/2" + causal,
             "block_m=128,block_n=96,scheduler=2,l2_section_mb=32,pack_heads=4", trace);
  check_sm90("head_dim=64,heads=64/1" + causal,
             "blocks_per_sm=3,kv_slots=3,row_max=1,scheduler=2,l2_section_mb=32,pack_heads=4",
             trace);
  check_sm90("head_dim=128,heads=9/1" + causal,
             "block_n=96,scheduler=0,l2_section_mb=32,kv_splits=4", trace);
  check_sm90("head_dim=128,heads=4/2,softcap=20,documents=1,dropout=0.25", "block_m=128,block_n=64",
             trace);
  check_sm90("head_dim=128,heads=4/2,alibi=1,sinks=fp32" + causal,
             "block_m=128,block_n=80,scheduler=2,l2_section_mb=32", trace);
}

TEST_F(Cuda, DropoutOfSm80KeepsTheRule) {
  open("cuda");
  if (!device_) return;
  const KernelTemplate& t = template_by_name("prefill_sm80");
  std::mt19937_64 random(7);
  for (const char* text :
       {"dtype=bf16,head_dim=64,heads=4/2,dropout=0.1",
        "dtype=fp16,head_dim=128,heads=4/2,dropout=0.5,mask=causal_bottom_right",
        "dtype=bf16,head_dim=96,heads=2/2,dropout=0.25,mask=causal_top_left,window=64:-",
        "dtype=fp16,head_dim=256,heads=2/1,dropout=0.25,documents=1,softcap=30"}) {
    const Problem p = parse_problem(std::string("batch=2,seqlen=600,") + text);
    if (!serves(t, spec_of(p))) GTEST_SKIP() << "no device that prefill_sm80 serves";
    const Arch arch = arch_for(*device_, t, spec_of(p));
    const std::vector<Config> legal = t.space(spec_of(p), arch).enumerate();
    check_config(t, p, t.default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts),
                 true, random, text);
    check_config(t, p, legal[random() % legal.size()], false, random, text);
  }
}

// Blocks share the keys of a tile: in one cluster and in several, with slices of columns that do
// not divide head_dim, fewer steps than blocks, and sinks.
TEST_F(Cuda, SplitsOfSm90KeepTheRule) {
  open("cuda");
  for (const int splits : {2, 4, 6, 8, 12, 16, 32}) {
    const std::string knobs = "block_n=64,scheduler=0,row_max=" + std::to_string(splits % 2) +
                              ",kv_splits=" + std::to_string(splits);
    for (const char* head : {"head_dim=64,heads=2/1,sinks=fp32", "head_dim=72,heads=2/2",
                             "head_dim_qk=192,head_dim_v=128,heads=2/1", "head_dim=256,heads=1/1"})
      check_sm90(head + std::string(",mask=causal_bottom_right"), knobs + ",l2_section_mb=32",
                 "splits");
    check_sm90("head_dim=128,heads=2/1", "block_m=64," + knobs, "splits");
  }
}

TEST_F(Cuda, SplitsOfSm90Fp8KeepTheRule) {
  open("cuda");
  for (const int splits : {2, 6, 8, 32})
    check_sm90_fp8("head_dim=128,heads=2/1,accuracy=fast",
                   "scheduler=0,flush_keys=0,kv_splits=" + std::to_string(splits), "splits");
}

// Warpgroups skip steps in which they see nothing: at both ends of a window, with more such steps
// than slots.
TEST_F(Cuda, SkippedStepsOfSm90KeepTheRule) {
  open("cuda");
  const std::string narrow = ",heads=2/2,mask=causal_bottom_right,window=10:0";
  check_sm90("head_dim=64" + narrow, "block_m=256,scheduler=2,l2_section_mb=32", "skipped");
  check_sm90("head_dim=64" + narrow,
             "block_m=192,ping_pong=1,row_max=1,scheduler=2,l2_section_mb=32", "skipped, in turns");
  check_sm90("head_dim=128" + narrow, "block_m=192,kv_ring=3,scheduler=2,l2_section_mb=32",
             "skipped, one ring");
  check_sm90("head_dim=64" + narrow,
             "block_m=128,blocks_per_sm=2,overlap=0,scheduler=2,l2_section_mb=32",
             "skipped, no overlap");
  check_sm90("head_dim=64,heads=2/2,window=20:20", "block_m=256,scheduler=0,kv_splits=6",
             "skipped, split");
}

TEST_F(Cuda, SkippedStepsOfSm90Fp8KeepTheRule) {
  open("cuda");
  const std::string narrow = ",heads=2/2,mask=causal_bottom_right,window=10:0";
  const std::string fast = ",accuracy=fast";
  check_sm90_fp8("head_dim=64" + narrow, "block_m=256,scheduler=2,l2_section_mb=32", "skipped");
  check_sm90_fp8("head_dim=64" + narrow + fast,
                 "block_m=192,ping_pong=1,row_max=1,flush_keys=0,scheduler=2,l2_section_mb=32",
                 "skipped, in turns");
  check_sm90_fp8("head_dim=128,scale_block_kv=64" + narrow,
                 "block_m=192,kv_ring=5,scheduler=2,l2_section_mb=32", "skipped, one ring");
  check_sm90_fp8("head_dim=128,dtype_kv=e5m2" + narrow,
                 "block_m=192,transpose_inside=1,scheduler=2,l2_section_mb=32",
                 "skipped, transposed inside");
  check_sm90_fp8("head_dim=64" + narrow + fast,
                 "block_m=128,blocks_per_sm=2,overlap=0,flush_keys=0,scheduler=2,l2_section_mb=32",
                 "skipped, no overlap");
  check_sm90_fp8("head_dim=64,heads=2/2,window=20:20" + fast,
                 "block_m=128,scheduler=0,flush_keys=0,kv_splits=6", "skipped, split");
}

// There are more tiles than multiprocessors, so a block's sums reuse the place of its previous
// tile's sums. The lengths are fixed: only many keys cause a flush, and few rows keep the oracle
// fast.
TEST_F(Cuda, SumsOfSm90Fp8FlushedIntoTheWorkspaceKeepTheRule) {
  open("cuda");
  for (const char* changes :
       {"transpose_inside=1,scheduler=2", "transpose_inside=0,kv_ring=5,scheduler=1"})
    check_lengths(
        "prefill_sm90_fp8", "dtype=e4m3,batch=2,head_dim=256,heads=70/2,seqlen_q=9,seqlen_kv=1300",
        "row_max=0,flush_keys=512", std::string("block_m=128,block_n=128,o_staging=0,") + changes);
}

// A window ends before the last rows: whole warpgroups see nothing, while others of the same tile
// do.
TEST_F(Cuda, WarpgroupsWithoutKeysOfSm90KeepTheRule) {
  open("cuda");
  const std::string behind =
      ",batch=2,heads=4/2,seqlen_q=232,seqlen_kv=95,mask=causal_top_left,window=64:-";
  check_lengths("prefill_sm90", "dtype=bf16,head_dim=64" + behind, "row_max=0,pack_heads=1",
                "block_m=128");
  check_lengths("prefill_sm90", "dtype=bf16,head_dim=128,softcap=20" + behind,
                "row_max=1,pack_heads=2", "block_m=192,scheduler=0,l2_section_mb=32");
  check_lengths("prefill_sm90_fp8", "dtype=e4m3,head_dim=64" + behind,
                "row_max=0,flush_keys=512,transpose_inside=0",
                "block_m=128,block_n=96,l2_section_mb=16");
}

}  // namespace
}  // namespace attune::testing
