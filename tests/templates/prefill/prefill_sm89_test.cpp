// SPDX-License-Identifier: Apache-2.0
// prefill_sm89 without a device: what it serves, its search space and defaults, its shared memory,
// and the instructions that NVRTC makes of a few configs (skips aloud without NVRTC). Numerics
// stand in numerics_test.
#include "generator/families/families.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/error.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

constexpr const char* kOptions[] = {"", ",accuracy=fast", ",v_layout=transposed,dtype_kv=e5m2",
                                    ",scale_block=16",
                                    ",scale_block_q=48,scale_block_kv=128,dtype_o=fp16"};

KernelSpec spec_from(const std::string& text) {
  const bool has_heads = text.find("heads=") != std::string::npos;
  return spec_of(parse_problem("seqlen=4096," + text + (has_heads ? "" : ",heads=8/2")));
}

std::string refusal(const std::string& problem, const char* arch) {
  return prefill_sm89().refuses(spec_from(problem), parse_arch(arch)).value_or("");
}

TEST(PrefillSm89, SaysWhatItServes) {
  for (const char* arch : {"sm_89", "sm_90", "sm_90a", "sm_100", "sm_120", "sm_121"})
    for (const char* options : kOptions)
      EXPECT_EQ(refusal(std::string("dtype=e4m3,head_dim=128") + options, arch), "") << arch;
  EXPECT_NE(
      refusal("dtype=e4m3,head_dim=128", "sm_86").find("this template serves sm_89 and later"),
      std::string::npos);
  EXPECT_NE(refusal("dtype=bf16,head_dim=128", "sm_89").find("this template serves e4m3"),
            std::string::npos);
  EXPECT_NE(refusal("dtype=e4m3,dtype_o=fp32,head_dim=128", "sm_89").find("o is fp32"),
            std::string::npos);
  EXPECT_NE(refusal("op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=8", "sm_89")
                .find("op is quantise"),
            std::string::npos);
}

TEST(PrefillSm89, EveryHeadDimHasALegalDefault) {
  for (const char* name : {"sm_89", "sm_90", "sm_100", "sm_120"})
    for (int qk = 16; qk <= 256; qk += 8)
      for (const int v : {16, qk, 256})
        for (const char* options : kOptions) {
          const Arch arch = parse_arch(name);
          const KernelSpec spec = spec_from("dtype=e4m3,head_dim_qk=" + std::to_string(qk) +
                                            ",head_dim_v=" + std::to_string(v) + options);
          const SearchSpace space = prefill_sm89().space(spec, arch);
          for (const int64_t rows : {16, 4096}) {
            const Config config = prefill_sm89().default_config(spec, arch, {1, rows, 4096, 8, 2},
                                                                typical_device(arch).facts);
            ASSERT_FALSE(space.broken(config)) << to_text(spec) << ": " << *space.broken(config);
            const Resources r = prefill_sm89().resources(spec, arch, config);
            EXPECT_LE(r.shared_bytes, arch.shared_bytes_per_block);
            EXPECT_LE(r.min_blocks_per_sm * (r.shared_bytes + 1024), arch.shared_bytes_per_sm);
          }
        }
}

TEST(PrefillSm89, KnobsFollowTheTensorCores) {
  const auto values = [](const char* problem, const char* arch, const std::string& name) {
    const SearchSpace space = prefill_sm89().space(spec_from(problem), parse_arch(arch));
    const auto knob = std::find_if(space.knobs().begin(), space.knobs().end(),
                                   [&](const Knob& k) { return k.name == name; });
    return knob->values;
  };
  using Values = std::vector<int64_t>;
  EXPECT_EQ(values("dtype=e4m3,head_dim=128", "sm_89", "flush"), Values({1}));
  EXPECT_EQ(values("dtype=e4m3,head_dim=128,accuracy=fast", "sm_120", "flush"), Values({0}));
  EXPECT_EQ(values("dtype=e4m3,head_dim=128", "sm_90", "flush"), Values({0, 1}));
  EXPECT_EQ(values("dtype=e4m3,head_dim=128", "sm_120", "unpack"), Values({0}));
  EXPECT_EQ(values("dtype=e4m3,head_dim=128", "sm_100", "unpack"), Values({1, 0}));
  for (const int64_t block_n : values("dtype=e4m3,head_dim=128", "sm_89", "block_n"))
    EXPECT_EQ(block_n % 32, 0);
}

TEST(PrefillSm89, TriesOtherArithmeticAlone) {
  const KernelSpec spec = spec_from("dtype=e4m3,head_dim=128");
  const Arch arch = parse_arch("sm_90");
  const SearchSpace space = prefill_sm89().space(spec, arch);
  Config config =
      prefill_sm89().default_config(spec, arch, {1, 4096, 4096, 8, 2}, typical_device(arch).facts);
  config.set("flush", 1);
  EXPECT_FALSE(space.broken(config)) << *space.broken(config);
  config.set("unpack", 0);
  EXPECT_NE(space.broken(config).value_or("").find("tried alone"), std::string::npos);
  config.set("flush", 0);
  EXPECT_FALSE(space.broken(config)) << *space.broken(config);
}

TEST(SharedMemory, PartsDoNotOverlap) {
  for (const int q_place : {0, 1, 2})
    for (const int share_kv : {0, 1})
      for (const int head_dim_v : {16, 72, 128, 256})
        for (const int element_bytes : {1, 2}) {
          const PrefillSm80Layout l{128,        48,           4, 3, share_kv, q_place, 128,
                                    head_dim_v, element_bytes};
          testing::expect_regions(testing::regions_of(l), prefill_sm80_shared_bytes(l));
        }
}

TEST(PrefillSm89, TilesTakeHalfOfWhatSixteenBitsTake) {
  PrefillSm80Layout layout{128, 64, 4, 2, 0, kQShared, 128, 64};
  const int sixteen = prefill_sm80_state_offset(layout);
  layout.element_bytes = 1;
  EXPECT_EQ(2 * prefill_sm80_state_offset(layout), sixteen);
  EXPECT_EQ(prefill_sm80_row_bytes(72, 1), 96);
  EXPECT_EQ(prefill_sm80_row_bytes(16, 1), 32);
}

std::string source_of(const std::string& problem) {
  const KernelSpec spec = spec_from(problem);
  const Arch arch = parse_arch("sm_89");
  return render(prefill_sm89(), spec, arch,
                prefill_sm89().default_config(spec, arch, {1, 4096, 4096, 8, 2},
                                              typical_device(arch).facts))
      .text;
}

// With a mask program, a tile of a call without keys visits a block. That block has no factors of K
// and V.
TEST(PrefillSm89, CallsWithoutKeysReadNoFactorsOfBlocks) {
  const std::string step = "Step step(const KernelParts& args",
                    guard = "if (kMaskProgram && args.base.seqlen_kv == 0)",
                    read = "factor_of<kScaleBlockKv>(args.scales.k_scale";
  const std::string blocks = "dtype=e4m3,head_dim=64,scale_block=64";
  const std::string masked = source_of(blocks + ",documents=1");
  const size_t begin = masked.find(step), end = masked.find(read);
  ASSERT_LT(begin, end);
  const size_t at = masked.find(guard, begin);
  EXPECT_TRUE(at != std::string::npos && at < end);
  EXPECT_NE(masked.find("constexpr bool kMaskProgram = true"), std::string::npos);
  EXPECT_EQ(source_of(blocks).find("constexpr bool kMaskProgram"), std::string::npos);
}

class PrefillSm89Compile : public ::testing::Test {
 protected:
  void SetUp() override {
    NvrtcLocation location;
    compiler_ = open_nvrtc_compiler(&location);
    if (compiler_ == nullptr) GTEST_SKIP() << nvrtc_advice();
  }

  static Source source(const char* arch) {
    const KernelSpec spec = spec_from("dtype=e4m3,head_dim=64");
    return render(prefill_sm89(), spec, parse_arch(arch),
                  prefill_sm89().default_config(spec, parse_arch(arch), {1, 4096, 4096, 8, 2},
                                                typical_device(parse_arch(arch)).facts));
  }

  const Compiler* compiler_ = nullptr;
};

TEST_F(PrefillSm89Compile, TheTemplateStatesTheRulesItself) {
  Source text = source("sm_89");
  const std::string knob = "constexpr int kBlockN = 64;";
  const size_t at = text.text.find(knob);
  ASSERT_NE(at, std::string::npos);
  text.text.replace(at, knob.size(), "constexpr int kBlockN = 48;");
  try {
    compiler_->compile(text, parse_arch("sm_89"));
    FAIL() << "compiled with half a product with V";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("block_n is a multiple of 32"), std::string::npos)
        << error.what();
  }
}

TEST_F(PrefillSm89Compile, DefaultsFitWithoutSpills) {
  for (const char* arch : {"sm_89", "sm_90", "sm_120"}) {
    const KernelImage image = compiler_->compile(source(arch), parse_arch(arch));
    EXPECT_EQ(image_fault(image.info), std::nullopt) << arch << "\n" << image.log;
  }
}

}  // namespace
}  // namespace attune
