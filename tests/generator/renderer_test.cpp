// SPDX-License-Identifier: Apache-2.0
// Rendered sources: self-contained, labelled, stable (golden files), illegal input refused, and their digests.
// ATTUNE_ACCEPT_GOLDEN=1 rewrites tests/golden (golden_text.hpp says what stands there); read the diff before committing it.
#include "generator/renderer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "generator/core/error.hpp"
#include "generator/core/problem.hpp"
#include "generator/source_bundle.hpp"
#include "generator/template_registry.hpp"
#include "tests/generator/altered_template.hpp"
#include "tests/generator/golden_text.hpp"

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
    {"sm90_d512_causal_bf16", "prefill_sm90", "sm_90a",
     "dtype=bf16,head_dim=512,heads=32/4,seqlen=8192,mask=causal_bottom_right"},
    {"sm80_d576_512_full_bf16", "prefill_sm80", "sm_80",
     "dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=16/1,seqlen=1024"},
    {"sm90_fp8_d128_causal", "prefill_sm90_fp8", "sm_90a",
     "dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm90_fp8_d256_blocks_fast", "prefill_sm90_fp8", "sm_90a",
     "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=256,heads=8,seqlen=8192,accuracy=fast,scale_"
     "block=128,v_layout=transposed"},
    {"backward_sm90_d128_causal", "backward_sm90", "sm_90a",
     "op=attention_backward,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"backward_sm90_d256_window", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=fp16,head_dim=256,heads=8,seqlen=4096,window=90:90,gradients=qv"},
    {"backward_sm90_d256_dropout", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=256,heads=16/8,seqlen=4096,dropout=0.1"},
    {"backward_sm80_d128_causal", "backward_sm80", "sm_80",
     "op=attention_backward,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"backward_sm80_d256_scores", "backward_sm80", "sm_86",
     "op=attention_backward,dtype=fp16,head_dim=256,heads=16,seqlen=4096,softcap=30,documents=1"},
    {"sm90_d128_dropout", "prefill_sm90", "sm_90a",
     "head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right,window=1000:0,dropout=0.1"},
    {"sm80_d64_dropout", "prefill_sm80", "sm_80",
     "dtype=fp16,head_dim=64,heads=16,seqlen=4096,dropout=0.1"},
    {"backward_sm90_d128_dropout", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=128,heads=16,seqlen=4096,dropout=0.1"},
    {"backward_sm90_d64_dropout_equal_bits", "backward_sm90", "sm_90a",
     "op=attention_backward,head_dim=64,heads=16,seqlen=4096,dropout=0.1,deterministic=1"},
    {"backward_sm90_d128_sums", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=128,heads=16/4,seqlen=4096,accumulate=1"},
    {"backward_sm90_d64_band", "backward_sm90", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=64,heads=32,seqlen=8192,mask=none,window=64:64"},
    {"backward_sm80_d64_dropout", "backward_sm80", "sm_80",
     "op=attention_backward,dtype=fp16,head_dim=64,heads=16,seqlen=4096,softcap=30,dropout=0.1"},
    {"score_gradient_sm80_bias", "score_gradient_sm80", "sm_90a",
     "op=attention_backward,dtype=bf16,head_dim=64,heads=16,seqlen=4096,bias=bf16,"
     "score_gradient=bias,repeats=bh"},
    {"score_gradient_sm80_table", "score_gradient_sm80", "sm_80",
     "op=attention_backward,dtype=fp16,head_dim=64,heads=12,seqlen=512,relative_bias=fp32,"
     "score_gradient=relative_bias,dropout=0.1"},
    {"sm80_d128_causal_bf16", "prefill_sm80", "sm_80",
     "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm80_d72_full_fp16", "prefill_sm80", "sm_86", "dtype=fp16,head_dim=72,heads=16,seqlen=577"},
    {"sm80_d192_128_window_bf16", "prefill_sm80", "sm_120",
     "dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=8,seqlen=1024,window=128:128"},
    {"sm80_tf32_d128_causal", "prefill_sm80_tf32", "sm_80",
     "dtype=fp32,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right,accuracy=fast"},
    {"sm80_tf32_d72_split", "prefill_sm80_tf32", "sm_90a",
     "dtype=fp32,head_dim=72,heads=8,seqlen=1024,accuracy=split"},
    {"sm75_d64_causal_fp16", "prefill_sm75", "sm_75",
     "dtype=fp16,head_dim=64,heads=12,seqlen=512,mask=causal_top_left"},
    {"sm89_d128_causal", "prefill_sm89", "sm_89",
     "dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right"},
    {"sm89_d72_blocks_transposed", "prefill_sm89", "sm_120",
     "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=72,heads=8,seqlen=1024,accuracy=fast,scale_"
     "block_q=64,scale_block_kv=48,v_layout=transposed"},
    {"reference_cuda_d128_bf16", "reference_cuda", "sm_80", "head_dim=128,heads=8/2,seqlen=128"},
    {"cpu_d128_causal_fp32", "prefill_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=128,heads=32/8,seqlen=2048,mask=causal_bottom_right"},
    {"cpu_d64_full_bf16", "prefill_cpu", "cpu:x86-64", "head_dim=64,heads=12,seqlen=512"},
    {"cpu_d64_dropout_fp32", "prefill_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=64,heads=12/4,seqlen=512,dropout=0.1"},
    {"backward_cpu_d64_dropout", "backward_cpu", "cpu:x86-64",
     "op=attention_backward,dtype=fp32,head_dim=64,heads=12/4,seqlen=512,dropout=0.1"},
    {"quantise_cuda_d128_hadamard", "quantise_cuda", "sm_90a",
     "op=quantise,dtype_o=e4m3,head_dim=128,heads=8,seqlen=512,scale_block=128,rotation=hadamard"},
    {"quantise_cpu_d64_transposed", "quantise_cpu", "cpu:x86-64",
     "op=quantise,dtype=fp16,dtype_o=e5m2,head_dim=64,heads=8,seqlen=1024,scale_block=128,v_layout="
     "transposed"},
    {"block_map_cuda_documents", "block_map_cuda", "sm_90a",
     "op=block_map,head_dim=128,heads=32/8,seqlen=4096,documents=1"},
    {"block_map_cpu_prefix", "block_map_cpu", "cpu:x86-64",
     "op=block_map,head_dim=64,heads=8,seqlen=1024,prefix=1"},
    {"decode_sm80_d128_pages", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/"
     "8,batch=32,seqlen_q=1,seqlen_kv=8192,page_size=16"},
    {"decode_sm80_d80_scores", "decode_sm80", "sm_80",
     "op=attention_kvcache,dtype=fp16,head_dim=80,heads=8,batch=4,seqlen_q=2,seqlen_kv=1000,mask="
     "causal_bottom_right,alibi=1,packed_q=1"},
    {"decode_sm80_d128_e4m3", "decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim=128,heads=32/8,seqlen=4,page_size=16"},
    {"cache_sm90_d128_pages", "cache_sm90", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/"
     "8,batch=8,seqlen_q=512,seqlen_kv=8192,mask=causal_bottom_right,page_size=16"},
    {"cache_sm90_d64_packed", "cache_sm90", "sm_90a",
     "op=attention_kvcache,dtype=fp16,head_dim=64,heads=8,batch=4,seqlen_q=100,seqlen_kv=1000,"
     "alibi=1,sinks=fp32,packed_q=1,packed_kv=1"},
    {"mla_sm90_d576_pages", "mla_sm90", "sm_90a",
     "op=attention_kvcache,head_dim_qk=576,head_dim_v=512,heads=8/1,seqlen=8,page_size=8,v_in_k=1"},
    {"decode_cpu_d64_fp32", "decode_cpu", "cpu:x86-64",
     "op=attention_kvcache,dtype=fp32,head_dim=64,heads=8/2,batch=4,seqlen_q=1,seqlen_kv=1000"},
    {"decode_cpu_d80_e5m2", "decode_cpu", "cpu:x86-64",
     "op=attention_kvcache,dtype=fp16,dtype_kv=e5m2,head_dim=80,heads=8/2,seqlen=1000"},
    {"append_kv_cuda_d128_pages", "append_kv_cuda", "sm_90a",
     "op=append_kv,head_dim=128,heads=4/2,seqlen=64,page_size=16,rotary=fp32,rotary_q=1"},
    {"merge_cuda_d128_mixed", "merge_cuda", "sm_90a",
     "op=merge,dtype=fp32,dtype_kv=bf16,head_dim=128,heads=32,seqlen=4096"},
    {"merge_cpu_d40_fp16", "merge_cpu", "cpu:x86-64",
     "op=merge,dtype=fp16,head_dim=40,heads=8,seqlen=1024"},
    {"reference_cpu_d64_fp32", "reference_cpu", "cpu:x86-64",
     "dtype=fp32,head_dim=64,heads=4,seqlen=128"},
};

Source render_default(const KernelTemplate& t, const char* problem, const char* arch_name) {
  const Problem parsed = parse_problem(problem);
  const Arch arch = parse_arch(arch_name);
  return render(
      t, spec_of(parsed), arch,
      t.default_config(spec_of(parsed), arch, shape_of(parsed), typical_device(arch).facts));
}

Source render_case(const GoldenCase& c) {
  return render_default(template_by_name(c.template_name), c.problem, c.arch);
}

TEST(Renderer, GoldenSources) {
  const bool accept = std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr;
  for (const GoldenCase& c : kCases) {
    const std::filesystem::path path =
        std::filesystem::path(ATTUNE_GOLDEN_DIR) / (std::string(c.name) + ".txt");
    const std::string text = testing::golden_text(render_case(c).text);
    if (accept) std::ofstream(path, std::ios::binary) << text;
    const std::string diff = testing::unified_diff(path, text);
    EXPECT_TRUE(diff.empty())
        << path
        << " differs; ATTUNE_ACCEPT_GOLDEN=1 in this test's environment accepts what was rendered\n"
        << diff;
  }
}

TEST(Renderer, GoldenFilesAreOfTheseCases) {
  std::set<std::string> names, files;
  for (const GoldenCase& c : kCases) names.insert(std::string(c.name) + ".txt");
  for (const auto& file : std::filesystem::directory_iterator(ATTUNE_GOLDEN_DIR))
    if (testing::file_text(file.path()).starts_with("// SPDX"))  // a rendered source
      files.insert(file.path().filename().string());
  EXPECT_EQ(files, names);
}

std::set<std::string, std::less<>> lines_of(std::string_view text) {
  std::set<std::string, std::less<>> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

TEST(Renderer, EachLineStandsUnderTheFileItIsFrom) {
  for (const GoldenCase& c : kCases) {
    const std::vector<testing::Section> sections = testing::sections_of(render_case(c).text);
    EXPECT_GT(sections.size(), 4U) << c.name;
    for (const testing::Section& section : sections) {
      const auto file = bundled_text(section.path);
      if (!file) continue;  // constants and generated parts
      const auto known = lines_of(*file);
      for (const std::string& line : lines_of(section.text))
        EXPECT_TRUE(line.empty() || known.count(line) != 0)
            << c.name << ": \"" << line << "\" is not in " << section.path;
    }
  }
}

// Between files it stays open: a reader meets it where it must be closed, as for extern "C" declarations of a file's own.
TEST(Renderer, TheNamespaceIsOpenedSeldomAndClosedAsOften) {
  for (const GoldenCase& c : kCases) {
    int depth = 0, opened = 0;
    std::string_view text;
    const std::string source = render_case(c).text;
    for (text = source; !text.empty();) {
      const size_t end = std::min(text.find('\n'), text.size() - 1);
      const std::string_view line = text.substr(0, end);
      if (line == "namespace attune {") ++depth, ++opened;
      if (line == "}  // namespace attune") --depth;
      ASSERT_TRUE(depth == 0 || depth == 1) << c.name;
      text.remove_prefix(end + 1);
    }
    EXPECT_EQ(depth, 0) << c.name;
    EXPECT_LE(opened, 3) << c.name;
  }
}

std::set<std::string> files_in(const Source& source) {
  std::set<std::string> files;
  for (const testing::Section& section : testing::sections_of(source.text))
    files.insert(section.path);
  return files;
}

TEST(Renderer, PartsThatAKernelDoesNotUseAreNotInItsText) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  const Problem problem = parse_problem("dtype=bf16,head_dim=128,heads=8,seqlen=4096");
  const Arch arch = parse_arch("sm_90a");
  const auto files = [&](const char* changes) {
    Config config =
        t.default_config(spec_of(problem), arch, shape_of(problem), typical_device(arch).facts);
    const Config changed = parse_config(changes);
    for (const auto& [knob, value] : changed.knobs()) config.set(knob, value);
    return files_in(render(t, spec_of(problem), arch, config));
  };
  const auto plain = files("row_max=0,kv_ring=0,kv_splits=1");
  const std::string parts = "cuda/attention/";
  EXPECT_EQ(plain.count(parts + "kv_split.cuh"), 0U);
  EXPECT_EQ(plain.count(parts + "recompute_scores.cuh"), 0U);
  EXPECT_EQ(plain.count("cuda/ptx/mma.cuh"), 0U);
  EXPECT_EQ(plain.count(parts + "epilogue_words.cuh"), 0U);
  EXPECT_EQ(plain.count(parts + "epilogue_tma.cuh"), 1U);
  EXPECT_EQ(files("row_max=1").count(parts + "recompute_scores.cuh"), 1U);
  EXPECT_EQ(files("kv_splits=2,scheduler=0,kv_ring=0,stages=2").count(parts + "kv_split.cuh"), 1U);
}

// A condition with < or > stands on a line that only narrow or only wide heads have.
TEST(Renderer, WhatWideHeadsNeedIsInTheirTextAlone) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  const auto text = [&](const char* head_dim) {
    return render_default(t, (std::string("dtype=bf16,heads=8,seqlen=4096,") + head_dim).c_str(),
                          "sm_90a")
        .text;
  };
  const std::string plain = text("head_dim=256"), wide = text("head_dim=512"),
                    wide_qk = text("head_dim_qk=512,head_dim_v=64");
  for (const char* word : {"kVSlices", "kLastVColumn", "kKParts", "up to 576"})
    EXPECT_EQ(plain.find(word), std::string::npos) << word;
  EXPECT_NE(plain.find("head_dim_qk is a multiple of 8 up to 256"), std::string::npos);
  EXPECT_EQ(wide.find("head_dim_qk is a multiple of 8 up to 256"), std::string::npos);
  EXPECT_NE(wide.find("head_dim_qk is a multiple of 8 up to 576"), std::string::npos);
  EXPECT_NE(wide.find("constexpr int kHeadDimV = 256;"), std::string::npos) << "that of a slice";
  EXPECT_EQ(wide_qk.find("kVSlices"), std::string::npos);
  EXPECT_NE(wide_qk.find("kKParts"), std::string::npos);
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

constexpr const char* kHeadDim72 = "dtype=bf16,head_dim=72,heads=8,seqlen=1024";
constexpr const char* kHeadDim128 = "dtype=bf16,head_dim=128,heads=8,seqlen=1024";

std::string digest_of(const KernelTemplate& t, const char* problem, const char* arch = "sm_90a") {
  return source_digest(render_default(t, problem, arch));
}

TEST(SourceDigest, ACommentChangesNothing) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  testing::AlteredTemplate altered(t);
  altered.alter_part = [](const KernelSpec&, std::string text) {
    return "// a new remark\n" + text + "// another\n\n";
  };
  EXPECT_NE(render_default(altered, kHeadDim128, "sm_90a").text,
            render_default(t, kHeadDim128, "sm_90a").text);
  EXPECT_EQ(digest_of(altered, kHeadDim128), digest_of(t, kHeadDim128));
  EXPECT_EQ(template_digest(altered), template_digest(t));
}

TEST(SourceDigest, AnExtraConstantChangesIt) {
  const KernelTemplate& t = template_by_name("prefill_cpu");
  testing::AlteredTemplate altered(t);
  altered.alter_constant = [](const KernelSpec&, Constant* constant) {
    if (constant->name == "kScratchBytes") constant->value += "0";
  };
  const char* problem = "dtype=fp32,head_dim=64,heads=8,seqlen=128";
  EXPECT_NE(digest_of(altered, problem, "cpu:x86-64"), digest_of(t, problem, "cpu:x86-64"));
  EXPECT_NE(template_digest(altered), template_digest(t));
}

TEST(SourceDigest, AnEmitterThatChangesAtOneHeadDimChangesItThereAlone) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  testing::AlteredTemplate altered(t);
  altered.alter_part = [](const KernelSpec& spec, std::string text) {
    if (spec.head_dim_qk == 72) text.replace(text.find("add.u32"), 7, "sub.u32");
    return text;
  };
  EXPECT_NE(digest_of(altered, kHeadDim72), digest_of(t, kHeadDim72));
  EXPECT_EQ(digest_of(altered, kHeadDim128), digest_of(t, kHeadDim128));
}

TEST(SourceDigest, EachKnobAndEachPartOfTheSpecChangesIt) {
  const KernelTemplate& t = template_by_name("prefill_sm80");
  const Arch arch = parse_arch("sm_80");
  const KernelSpec spec = spec_of(parse_problem(kHeadDim128));
  const SearchSpace space = t.space(spec, arch);
  const Config config =
      t.default_config(spec, arch, Shape{1, 1024, 1024, 8, 8}, typical_device(arch).facts);
  std::set<std::string> digests{source_digest(render(t, spec, arch, config))};
  size_t count = 1;
  for (const Config& other : space.neighbours(config)) {
    digests.insert(source_digest(render(t, spec, arch, other)));
    ++count;
  }
  for (const char* problem : {"dtype=bf16,head_dim=128,heads=8,seqlen=1024,mask=causal_top_left",
                              "dtype=bf16,head_dim=128,heads=8,seqlen=1024,window=5:-", kHeadDim72,
                              "dtype=fp16,head_dim=128,heads=8,seqlen=1024",
                              "dtype=bf16,head_dim=128,heads=8/2,seqlen=1024"}) {
    digests.insert(digest_of(t, problem, "sm_80"));
    ++count;
  }
  EXPECT_GT(count, 6U) << "no knob was changed";
  EXPECT_EQ(digests.size(), count);
}

TEST(TemplateDigest, DiffersBetweenTemplates) {
  std::set<std::string> digests;
  for (const KernelTemplate* t : all_templates()) digests.insert(template_digest(*t));
  EXPECT_EQ(digests.size(), all_templates().size());
}

TEST(TemplateDigest, IsWorkedOutOnce) {
  testing::AlteredTemplate counted(template_by_name("prefill_sm90"));
  int parts = 0;
  counted.alter_part = [&](const KernelSpec&, std::string text) { return ++parts, text; };
  const std::string first = template_digest(counted);
  const int asked = parts;
  EXPECT_GT(asked, 0);
  EXPECT_EQ(template_digest(counted), first);
  EXPECT_EQ(parts, asked);
}

TEST(TemplateDigest, DoesNotFollowDefaultConfigs) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  testing::AlteredTemplate altered(t);
  altered.alter_default = [](Config config) {
    config.set("l2_section_mb", 16);
    return config;
  };
  EXPECT_EQ(template_digest(altered), template_digest(t));
}

}  // namespace
}  // namespace attune
