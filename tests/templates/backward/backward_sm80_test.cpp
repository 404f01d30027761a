// SPDX-License-Identifier: Apache-2.0
// backward_sm80 without a device: shared memory layout, search space and defaults, launch steps,
// and NVRTC's report on a few defaults (skips aloud without NVRTC). backward_test.cpp checks
// results.
#include "generator/families/families.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/families/backward/backward_sm80_cost.hpp"
#include "generator/render/renderer.hpp"
#include "generator/score/language/user_program.hpp"
#include "tests/generator/accepted_compiles.hpp"
#include "tests/templates/shared/layout_regions.hpp"

namespace attune {
namespace {

using testing::expect_regions;
using testing::regions_of;

constexpr const char* kDims[] = {"head_dim=16",
                                 "head_dim=64",
                                 "head_dim=72",
                                 "head_dim=96",
                                 "head_dim=128",
                                 "head_dim=192",
                                 "head_dim=256",
                                 "head_dim_qk=192,head_dim_v=128",
                                 "head_dim_qk=40,head_dim_v=256",
                                 "head_dim_qk=256,head_dim_v=16"};

Problem problem(const std::string& text, const char* dtype = "bf16") {
  return parse_problem(std::string("op=attention_backward,heads=16,seqlen=4096,dtype=") + dtype +
                       "," + text);
}

Config default_of(const Problem& p, const Arch& arch) {
  return backward_sm80().default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts);
}

std::vector<Arch> archs() {
  std::vector<Arch> all;
  for (const char* name : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_120"})
    all.push_back(parse_arch(name));
  return all;
}

TEST(BackwardSm80Layout, RegionsFollowEachOtherAndTilesBeginAtMultiplesOf128) {
  for (const int stay : {64, 128})
    for (const int step : {16, 48})
      for (const bool second : {false, true})
        for (const bool statistics : {false, true}) {
          const BackwardSm80Tile tile{stay, step, 4, 3, 72, 200, second, statistics};
          expect_regions(regions_of(tile), backward_sm80_layout(tile).bytes);
        }
}

TEST(BackwardSm80Space, DefaultsAreLegalAndEveryLegalConfigFitsTheMachine) {
  for (const Arch& arch : archs())
    for (const char* dims : kDims)
      for (const char* more : {"", ",gradients=q", ",gradients=k", ",gradients=v,softcap=30"}) {
        const Problem p = problem(std::string(dims) + more, "fp16");
        const KernelSpec spec = spec_of(p);
        const SearchSpace space = backward_sm80().space(spec, arch);
        EXPECT_EQ(space.broken(default_of(p, arch)), std::nullopt) << to_text(p) << arch.name();
        const std::vector<Config> all = space.enumerate();
        ASSERT_GE(all.size(), 1u) << to_text(p) << arch.name();
        for (size_t i = 0; i < all.size(); i += 17)
          for (const MmaGradientKernel& kernel : mma_gradient_kernels(spec, all[i])) {
            expect_regions(regions_of(kernel.tile), kernel.shared_bytes());
            EXPECT_LE(kernel.shared_bytes(), arch.shared_bytes_per_block);
            EXPECT_LT(kernel.accumulators() * kernel.threads() * kernel.blocks_per_sm,
                      arch.registers_per_sm);
          }
      }
}

// A launch only has the steps that the requested gradients need.
TEST(BackwardSm80Launch, HasAStepForEachNeededKernel) {
  const Arch arch = parse_arch("sm_80");
  const auto entries = [&](const std::string& text) {
    const Problem p = problem(text);
    const Config config = default_of(p, arch);
    const LaunchPlan plan =
        backward_sm80().launch(spec_of(p), config, shape_of(p), typical_device(arch).facts);
    const std::string source = render(backward_sm80(), spec_of(p), arch, config).text;
    std::string all;
    for (const LaunchStep& step : plan.steps) all += step.entry + " ";
    for (const char* entry : {"attune_prepare", "attune_kernel", "attune_keys", "attune_values"})
      EXPECT_EQ(all.find(entry) != std::string::npos,
                source.find("    " + std::string(entry) + "(") != std::string::npos)
          << entry;
    return all;
  };
  EXPECT_EQ(entries("head_dim=128"), "attune_prepare attune_kernel attune_keys ");
  EXPECT_EQ(entries("head_dim=128,gradients=q"), "attune_prepare attune_kernel ");
  EXPECT_EQ(entries("head_dim=128,gradients=k"), "attune_prepare attune_keys ");
  EXPECT_EQ(entries("head_dim=256"), "attune_prepare attune_kernel attune_keys attune_values ");
  EXPECT_EQ(entries("head_dim=256,gradients=v"), "attune_prepare attune_keys ");
}

// A kernel computes a score's slope only if scores are changed in other ways than adding or hiding.
TEST(BackwardSm80Source, HasOnlyThePartsThatItsScoresNeed) {
  const Arch arch = parse_arch("sm_80");
  const auto has = [&](const char* scores, const char* part) {
    const Problem p = problem(std::string("head_dim=64,") + scores);
    return render(backward_sm80(), spec_of(p), arch, default_of(p, arch)).text.find(part) !=
           std::string::npos;
  };
  EXPECT_TRUE(has("softcap=30", "slope_element"));
  EXPECT_TRUE(has("bias=bf16", "score_element"));
  EXPECT_FALSE(has("bias=bf16", "slope_element"));
  EXPECT_TRUE(has("documents=1", "mask_element"));
  EXPECT_FALSE(has("documents=1", "score_element"));
  EXPECT_FALSE(has("gradients=q", "ElementNames"));
}

// Built-in features give finite numbers for rows past the end; user programs may give NaN.
TEST(BackwardSm80Source, MasksRowsPastTheEndForUserPrograms) {
  const Arch arch = parse_arch("sm_80");
  const std::string masks = "constexpr bool kUserScores = true";
  Problem p = problem("head_dim=64,softcap=30,bias=bf16");
  const auto has = [&] {
    return render(backward_sm80(), spec_of(p), arch, default_of(p, arch)).text.find(masks) !=
           std::string::npos;
  };
  EXPECT_FALSE(has());
  p.scores.score_mod = read_user_program("return score - sqrt(float(seqlen_q - 1 - q_idx));",
                                         score::Kind::kScore, "score_mod")
                           .digest;
  EXPECT_TRUE(has());
}

TEST(BackwardSm80Space, RefusesWithAReason) {
  const auto refusal = [](const char* text, const char* arch) {
    return backward_sm80()
        .refuses(
            spec_of(parse_problem(std::string("op=attention_backward,heads=8,seqlen=64,") + text)),
            parse_arch(arch))
        .value_or("");
  };
  EXPECT_EQ(refusal("head_dim=128,softcap=20,documents=1", "sm_86"), "");
  EXPECT_EQ(refusal("head_dim=256,dtype=fp16", "sm_75"), "");
  EXPECT_NE(refusal("head_dim=128", "sm_75").find("serves fp16"), std::string::npos);
  EXPECT_NE(refusal("head_dim=128", "cpu:x86-64").find("sm_75 and later"), std::string::npos);
  EXPECT_NE(refusal("head_dim=264", "sm_80").find("264"), std::string::npos);
  EXPECT_NE(refusal("head_dim=128,dtype=fp32", "sm_80").find("fp32"), std::string::npos);
}

TEST(BackwardSm80Space, SentencesNameTheRule) {
  const Arch arch = parse_arch("sm_86");
  const Problem p = problem("head_dim=128");
  const SearchSpace space = backward_sm80().space(spec_of(p), arch);
  const auto broken = [&](std::initializer_list<std::pair<const char*, int64_t>> knobs) {
    Config config = default_of(p, arch);
    for (const auto& [name, value] : knobs) config.set(name, value);
    return space.broken(config).value_or("");
  };
  EXPECT_NE(broken({{"block_m", 64}, {"warps", 8}}).find("16 or 32"), std::string::npos);
  EXPECT_NE(broken({{"key_block_n", 128}, {"key_warps", 8}, {"key_block_m", 64}, {"q_slots", 3}})
                .find("shared memory"),
            std::string::npos);
  EXPECT_NE(broken({{"key_block_n", 128},
                    {"key_warps", 4},
                    {"key_block_m", 16},
                    {"q_slots", 1},
                    {"key_blocks_per_sm", 1}})
                .find("registers"),
            std::string::npos);
}

// Returns specs of every kind of score with ATTUNE_FULL_MATRIX=1; compile_matrix_test.cpp has the
// defaults without scores.
std::vector<std::pair<const char*, std::string>> compiled() {
  if (std::getenv("ATTUNE_FULL_MATRIX") == nullptr)
    return {{"sm_80", "head_dim=128,mask=causal_bottom_right"},
            {"sm_86", "head_dim=64,softcap=30,documents=1"}};
  std::vector<std::pair<const char*, std::string>> all;
  for (const char* arch : {"sm_80", "sm_86", "sm_90a", "sm_120"})
    for (const char* dims : {"head_dim=64", "head_dim=128", "head_dim=256"})
      for (const char* scores : {"softcap=50", "alibi=1", "bias=bf16", "relative_bias=fp32",
                                 "mask_tensor=1", "documents=1", "key_lengths=1",
                                 "softcap=30,alibi=1,bias=fp32,documents=1,mask_tensor=1"})
        all.emplace_back(arch, std::string(dims) + ",mask=causal_bottom_right," + scores);
  return all;
}

TEST(BackwardSm80Compile, DefaultsCompileWithoutSpills) {
  const Compiler* compiler = open_nvrtc_compiler();
  if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
  for (const auto& [name, text] : compiled()) {
    const Problem p = problem(text);
    const Arch arch = parse_arch(name);
    const Config config = default_of(p, arch);
    EXPECT_EQ(testing::compile_fault(*compiler, backward_sm80(), spec_of(p), arch, config), "")
        << name << " " << text << " " << config.to_text();
  }
}

}  // namespace
}  // namespace attune
