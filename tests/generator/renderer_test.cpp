// SPDX-License-Identifier: Apache-2.0
// Rendered sources: self-contained, stable (golden files), illegal input refused.
// ATTUNE_ACCEPT_GOLDEN=1 rewrites tests/golden; read the diff before committing it.
#include "generator/renderer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "generator/core/error.hpp"
#include "generator/core/problem.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

struct GoldenCase {
  const char* name;
  const char* template_name;
  const char* arch;
  const char* problem;
};

const GoldenCase kCases[] = {
    {"sm90_d128_causal_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm90_d128_packed_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen_q=16,seqlen_kv=8192,mask=causal_bottom_right"},
    {"sm90_d64_full_fp16", "prefill_sm90", "sm_90a", "dtype=fp16,head_dim=64,heads=16,seqlen=4096"},
    {"sm90_d256_window_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=256,heads=16/8,seqlen=8192,mask=causal_bottom_right,window=4096:0"},
    {"sm90_fp8_d128_causal", "prefill_sm90_fp8", "sm_90a",
     "dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm90_fp8_d256_blocks_fast", "prefill_sm90_fp8", "sm_90a",
     "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=256,heads=8,seqlen=8192,accuracy=fast,scale_"
     "block=128,v_layout=transposed"},
    {"sm80_d128_causal_bf16", "prefill_sm80", "sm_80",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm80_d72_full_fp16", "prefill_sm80", "sm_86", "dtype=fp16,head_dim=72,heads=16,seqlen=577"},
    {"sm80_d192_128_window_bf16", "prefill_sm80", "sm_120",
     "dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=8,seqlen=1024,window=128:128"},
    {"sm75_d64_causal_fp16", "prefill_sm75", "sm_75",
     "dtype=fp16,head_dim=64,heads=12,seqlen=512,mask=causal_top_left"},
    {"sm89_d128_causal", "prefill_sm89", "sm_89",
     "dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm89_d72_blocks_transposed", "prefill_sm89", "sm_120",
     "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=72,heads=8,seqlen=1024,accuracy=fast,scale_"
     "block_q=64,scale_block_kv=48,v_layout=transposed"},
    {"reference_cuda_d128_bf16", "reference_cuda", "sm_80",
     "dtype=bf16,head_dim=128,heads=8/2,seqlen=128"},
    {"cpu_d128_causal_fp32", "prefill_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=128,heads=32/8,seqlen=2048,mask=causal_bottom_right"},
    {"cpu_d64_full_bf16", "prefill_cpu", "cpu:x86-64",
     "dtype=bf16,head_dim=64,heads=12,seqlen=512"},
    {"quantise_cuda_d128_hadamard", "quantise_cuda", "sm_90a",
     "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=128,heads=32,seqlen=4096,scale_block=128,"
     "rotation=hadamard"},
    {"quantise_cpu_d64_transposed", "quantise_cpu", "cpu:x86-64",
     "op=quantise,dtype=fp16,dtype_o=e5m2,head_dim=64,heads=8,seqlen=1024,scale_block=128,v_layout="
     "transposed"},
    {"reference_cpu_d64_fp32", "reference_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=64,heads=4,seqlen=128"},
};

Source render_case(const GoldenCase& c) {
  const KernelTemplate& t = template_by_name(c.template_name);
  const Problem problem = parse_problem(c.problem);
  const Arch arch = parse_arch(c.arch);
  return render(
      t, spec_of(problem), arch,
      t.default_config(spec_of(problem), arch, shape_of(problem), typical_device(arch).facts));
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Renderer, GoldenSources) {
  const bool accept = std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr;
  for (const GoldenCase& c : kCases) {
    const std::filesystem::path path =
        std::filesystem::path(ATTUNE_GOLDEN_DIR) / (std::string(c.name) + ".txt");
    const std::string text = render_case(c).text;
    if (accept) std::ofstream(path) << text;
    EXPECT_EQ(read_file(path) == text, true)
        << path << " differs; ATTUNE_ACCEPT_GOLDEN=1 rewrites it";
  }
}

TEST(Renderer, SourcesAreSelfContained) {
  for (const GoldenCase& c : kCases) {
    const std::string text = render_case(c).text;
    EXPECT_EQ(text.find("#include"), std::string::npos) << c.name;
    EXPECT_EQ(text.find("_knobs.cuh"), std::string::npos) << c.name;
    EXPECT_NE(text.find(kEntryName), std::string::npos) << c.name;
  }
}

TEST(Renderer, ConstantsFollowSpecAndConfig) {
  const KernelTemplate& t = template_by_name("reference_cuda");
  const KernelSpec spec =
      spec_of(parse_problem("dtype=fp16,head_dim_qk=96,head_dim_v=40,heads=14/"
                            "2,seqlen=8,mask=causal_top_left,window=5:-"));
  const Arch arch = parse_arch("sm_89");
  const std::string text =
      render(t, spec, arch, t.default_config(spec, arch, Shape{}, typical_device(arch).facts)).text;
  for (const char* line :
       {"constexpr int kArch = 89;", "constexpr Dtype kDtypeQ = Dtype::kFp16;",
        "constexpr int kHeadDimQk = 96;", "constexpr int kHeadDimV = 40;",
        "constexpr int kGqaRatio = 7;", "constexpr Mask kMask = Mask::kCausalTopLeft;",
        "constexpr int kWindowLeft = 5;", "constexpr int kWindowRight = -1;"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

TEST(Renderer, RefusesIllegalConfigAndUnservedSpec) {
  const KernelTemplate& t = template_by_name("prefill_sm80");
  const KernelSpec spec = spec_of(parse_problem("dtype=fp16,head_dim=64,heads=1,seqlen=8"));
  const Arch arch = parse_arch("sm_80");
  Config config = t.default_config(spec, arch, Shape{1, 8, 8, 1, 1}, typical_device(arch).facts);
  config.set("block_m", 12345);
  EXPECT_THROW(render(t, spec, arch, config), Error);
  EXPECT_THROW(
      render(t, spec_of(parse_problem("dtype=fp32,head_dim=128,heads=1,seqlen=8")), arch, config),
      Error);
}

TEST(Renderer, DigestsDifferBetweenTemplatesAndStayPut) {
  std::set<std::string> digests;
  for (const KernelTemplate* t : all_templates()) {
    digests.insert(template_digest(*t));
    EXPECT_EQ(template_digest(*t), template_digest(*t));
  }
  EXPECT_EQ(digests.size(), all_templates().size());
}

}  // namespace
}  // namespace attune
