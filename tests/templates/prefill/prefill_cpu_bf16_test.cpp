// SPDX-License-Identifier: Apache-2.0
// Tests products of bf16 pairs on CPUs (family prefill_cpu_bf16). Kernels with AMX run on the CPU
// if it has AMX, else on emulated instructions (tile_emulator.hpp). Kernels with VDPBF16PS compute
// without that instruction where the CPU lacks it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "generator/core/problem/arch.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/families.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tests/support/host_run.hpp"
#include "tests/support/tile_emulator.hpp"

namespace attune::testing {
namespace {

using ::testing::HasSubstr;

#if defined(__x86_64__)

const char* const kProblems[] = {
    "dtype=bf16,head_dim=64,heads=2,seqlen=150,mask=causal_bottom_right",
    "dtype=bf16,head_dim=128,heads=6/2,seqlen_q=45,seqlen_kv=301,window=80:20",
    "dtype=bf16,head_dim_qk=72,head_dim_v=40,heads=3/1,batch=2,seqlen_q=67,seqlen_kv=290",
    "dtype=bf16,head_dim_qk=16,head_dim_v=24,heads=4/2,seqlen_q=131,seqlen_kv=70,mask=causal_top_"
    "left",
    "dtype=bf16,head_dim=96,heads=2,seqlen=140,softcap=20,mask=causal_bottom_right",
    "dtype=bf16,head_dim=64,heads=4/2,seqlen=200,documents=1,alibi=1",
    "dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=2/1,seqlen_q=33,seqlen_kv=258,sinks=fp32",
    "dtype=bf16,head_dim=80,heads=2/1,seqlen_q=1,seqlen_kv=257,bias=bf16"};

class PrefillCpuBf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
    arch_ = toolchain_->host_arch();
    tiled_ = with_tiles(arch_);
  }

  static Config default_of(const Problem& problem, const Arch& arch) {
    return prefill_cpu_bf16().default_config(spec_of(problem), arch, shape_of(problem),
                                             typical_device(arch).facts);
  }

  void check(const Problem& problem, const Arch& arch, const Config& config, uint64_t seed,
             const Arch* rendered_for = nullptr) const {
    const HostConfig host(*toolchain_, arch, prefill_cpu_bf16(), spec_of(problem), config,
                          rendered_for);
    const std::string trace = to_text(problem) + " config " + config.to_text();
    const AttentionCase c(problem, static_cast<Layout>(seed % 3), Inputs::kNormal, seed);
    const HostOutcome outcome = host.run(c, 2);
    EXPECT_EQ(verdict(c, outcome.result, Arithmetic::kKernel), "") << trace;
    EXPECT_TRUE(outcome.gaps_intact) << trace << ": wrote outside o";
    EXPECT_TRUE(outcome.counters_clear) << trace << ": left its counters set";
  }

  const CpuToolchain* toolchain_ = nullptr;
  Arch arch_, tiled_;  // this machine, and this machine with AMX
};

TEST_F(PrefillCpuBf16, TilesComputeEveryMaskAndScore) {
  const TileEmulator emulator(arch_);
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    const long long before = TileEmulator::products();
    check(problem, tiled_, default_of(problem, tiled_), std::strlen(text));
    if (TileEmulator::is_on()) {
      EXPECT_GT(TileEmulator::products(), before) << text;
    }
  }
}

TEST_F(PrefillCpuBf16, EveryPanelAndBlockOfTilesIsRight) {
  const TileEmulator emulator(arch_);
  const Problem problem = parse_problem(
      "dtype=bf16,head_dim_qk=40,head_dim_v=72,heads=5/1,seqlen_q=27,seqlen_kv=300,window=100:30");
  std::set<std::pair<int64_t, int64_t>> checked;  // one block_m and schedule for each shape
  for (const Config& config : prefill_cpu_bf16().space(spec_of(problem), tiled_).enumerate())
    if (config.at("tiles") == 1 &&
        checked.insert({config.at("block_n"), config.at("vectors")}).second)
      check(problem, tiled_, config, checked.size());
  EXPECT_GE(checked.size(), 6U);
}

// The kernel is for registers of 64 bytes and VDPBF16PS. Compiled for a CPU without them, it does
// the same in shorter registers.
TEST_F(PrefillCpuBf16, PairsComputeEveryMaskAndScore) {
  Arch wide = arch_;
  wide.vector_bytes = 64;
  wide.features = {"+avx512bf16"};
  uint64_t seed = 0;
  for (const char* text : kProblems) {
    const Problem problem = parse_problem(text);
    Config config = default_of(problem, wide);
    config.set("vectors", ++seed % 2 + 1);
    config.set("block_m", config.at("vectors") * 64);  // four panels
    EXPECT_EQ(config.at("tiles"), 0);
    check(problem, arch_, config, seed, &wide);
  }
}

TEST_F(PrefillCpuBf16, ScoresOfAnySizeKeepTheRule) {
  const TileEmulator emulator(arch_);
  const Problem problem = parse_problem("dtype=bf16,head_dim=64,heads=2,seqlen_q=40,seqlen_kv=300");
  const HostConfig host(*toolchain_, tiled_, prefill_cpu_bf16(), spec_of(problem),
                        default_of(problem, tiled_));
  for (const Inputs inputs : {Inputs::kLogitsTimes16, Inputs::kLogitsTimes64, Inputs::kAllNegative,
                              Inputs::kOutlierRow, Inputs::kOutliers, Inputs::kMeanOfV}) {
    const AttentionCase c(problem, Layout::kContiguous, inputs, 3);
    EXPECT_EQ(verdict(c, host.run(c, 2).result), "") << static_cast<int>(inputs);
  }
}

TEST_F(PrefillCpuBf16, LengthsAroundTiles) {
  const TileEmulator emulator(arch_);
  const Problem base = parse_problem(
      "dtype=bf16,head_dim=32,heads=4/2,batch=2,seqlen=64,mask=causal_bottom_right,window=90:-");
  Config config = default_of(base, tiled_);
  config.set("block_n", 64);
  const HostConfig host(*toolchain_, tiled_, prefill_cpu_bf16(), spec_of(base), config);
  for (const int64_t seqlen_q : {0, 1, 7, 8, 9, 33}) {
    for (const int64_t seqlen_kv : {0, 1, 15, 16, 31, 32, 33, 64, 65, 130}) {
      Problem problem = base;
      problem.seqlen_q = seqlen_q;
      problem.seqlen_kv = seqlen_kv;
      const AttentionCase c(problem, Layout::kHeadsFirst, Inputs::kNormal, 5);
      EXPECT_EQ(verdict(c, host.run(c, 3).result), "") << to_text(problem);
    }
  }
}

// Documents end anywhere in a tile. V of other documents is not finite, and 0 times NaN is NaN.
TEST_F(PrefillCpuBf16, KeysOfOtherDocumentsAreNotComputed) {
  const TileEmulator emulator(arch_);
  const Problem problem = parse_problem("dtype=bf16,head_dim=64,heads=2/1,seqlen=300,documents=1");
  AttentionCase c(problem, Layout::kContiguous, Inputs::kNormal, 3);
  for (HostCapture& ids : c.captures) {
    ids.strides = {300, 1};
    ids.bytes.resize(300 * sizeof(int32_t));
    for (int32_t row = 0; row < 300; ++row) {
      const int32_t id = row < 37 ? 0 : row < 203 ? 1 : 2;
      std::memcpy(ids.bytes.data() + static_cast<size_t>(row) * sizeof(id), &id, sizeof(id));
    }
  }
  for (int64_t key = 0; key < 300; ++key)
    if (key < 37 || key >= 203) c.v.set(0, key, 0, 5, std::nanf(""));
  const HostConfig host(*toolchain_, tiled_, prefill_cpu_bf16(), spec_of(problem),
                        default_of(problem, tiled_));
  const AttentionResult result = host.run(c, 1).result;
  const auto row_size = static_cast<size_t>(problem.num_heads_q * 64);
  for (size_t i = 64 * row_size; i < 128 * row_size; ++i)
    ASSERT_TRUE(std::isfinite(result.o[i])) << "row " << i / row_size;
}

TEST_F(PrefillCpuBf16, TheSystemIsAskedForTiles) {
  const Problem problem = parse_problem(kProblems[0]);
  const Config config = default_of(problem, tiled_);
  const auto load = [&] {
    return HostConfig(*toolchain_, tiled_, prefill_cpu_bf16(), spec_of(problem), config);
  };
  if (has_bf16_tiles(arch_)) {
    EXPECT_NO_THROW(load());
    return;
  }
  try {
    load();
    FAIL() << "loaded a kernel with tiles on a CPU that has none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("does not let this process use AMX"));
  }
}

#endif

Arch machine(int vector_bytes, std::vector<std::string> features) {
  Arch arch = parse_arch("cpu:sapphirerapids");
  arch.vector_bytes = vector_bytes;
  arch.features = std::move(features);
  return arch;
}
const Arch kOld = machine(32, {"+avx2", "+fma"}), kPairs = machine(64, {"+avx512bf16"}),
           kTiles = machine(64, {"+amx-bf16", "+amx-tile"}),
           kBoth = machine(64, {"+amx-bf16", "+amx-tile", "+avx512bf16"}),
           kHalfOfTiles = machine(64, {"+amx-int8", "+amx-tile"});

TEST(PrefillCpuBf16Choice, FeaturesDecideWhatIsLegal) {
  const KernelSpec spec = spec_of(parse_problem("dtype=bf16,head_dim=64,heads=1,seqlen=64"));
  for (const Arch& arch : {kOld, kHalfOfTiles})
    EXPECT_THAT(prefill_cpu_bf16().refuses(spec, arch).value_or(""),
                HasSubstr("has neither AMX (amx-tile, amx-bf16) nor AVX512_BF16"));
  for (const auto& [arch, values] :
       {std::pair{kPairs, std::set<int64_t>{0}}, {kTiles, {1}}, {kBoth, {0, 1}}}) {
    EXPECT_EQ(prefill_cpu_bf16().refuses(spec, arch), std::nullopt);
    std::set<int64_t> found;
    const SearchSpace space = prefill_cpu_bf16().space(spec, arch);
    for (const Config& config : space.enumerate()) found.insert(config.at("tiles"));
    EXPECT_EQ(found, values);
    Config other = space.enumerate().front();
    other.set("tiles", values.contains(0) ? 1 : 0);
    EXPECT_EQ(space.broken(other).has_value(), values.size() == 1);
    for (const int64_t seqlen : {1, 30, 100, 1000, 100000}) {
      const Config config = prefill_cpu_bf16().default_config(
          spec, arch, Shape{1, seqlen, seqlen, 8, 8}, typical_device(arch).facts);
      EXPECT_EQ(space.broken(config), std::nullopt) << config.to_text();
      EXPECT_EQ(config.at("tiles"), values.contains(1) ? 1 : 0);
    }
  }
  for (const char* text :
       {"dtype=fp16,head_dim=64,heads=1,seqlen=64", "dtype=fp32,head_dim=64,heads=1,seqlen=64"})
    EXPECT_THAT(prefill_cpu_bf16().refuses(spec_of(parse_problem(text)), kBoth).value_or(""),
                HasSubstr("this template serves bf16"));
}

// The family was never timed on a CPU with its instructions, so a default is never of it. The tuner
// tries it.
TEST(PrefillCpuBf16Choice, OnlyTheTunerChoosesIt) {
  const Problem problem = parse_problem("dtype=bf16,head_dim=128,heads=32/8,seqlen=4096");
  for (const Arch& arch : {kOld, kPairs, kTiles, kBoth}) {
    const Serving found = serving(spec_of(problem), {arch});
    const std::vector<Family> ordered =
        by_fit(found.families, spec_of(problem), shape_of(problem), typical_device(arch).facts);
    ASSERT_FALSE(ordered.empty());
    EXPECT_EQ(ordered.front().kernel_template->name(), "prefill_cpu");
    const std::vector<Family> tried = worth_trying(found.families, spec_of(problem),
                                                   shape_of(problem), typical_device(arch).facts);
    EXPECT_EQ(std::any_of(tried.begin(), tried.end(),
                          [](const Family& family) {
                            return family.kernel_template == &prefill_cpu_bf16();
                          }),
              arch.features != kOld.features);
  }
}

}  // namespace
}  // namespace attune::testing
