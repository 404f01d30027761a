// SPDX-License-Identifier: Apache-2.0
// Rendered sources are self-contained, labelled and stable (golden files); illegal input is
// refused; digests follow the source. ATTUNE_ACCEPT_GOLDEN=1 accepts the rendered texts
// (golden_text.hpp); read the diff before that.
#include "generator/render/renderer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "generator/core/problem/problem.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/inliner.hpp"
#include "generator/template_registry.hpp"
#include "tests/generator/altered_template.hpp"
#include "tests/generator/render/golden_cases.hpp"
#include "tests/generator/render/golden_text.hpp"

namespace attune {
namespace {

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
  testing::GoldenDigests digests(ATTUNE_GOLDEN_DIR "/sources.txt", ATTUNE_GOLDEN_KEPT);
  for (const GoldenCase& c : kGoldenCases) {
    const std::string source = render_case(c).text, name = c.name;
    const std::string preamble =
        digests.difference(name + " preamble", testing::golden_preamble(source));
    const std::string parts = digests.difference(name + " parts", testing::golden_parts(source));
    EXPECT_TRUE(preamble.empty()) << preamble;
    EXPECT_TRUE(parts.empty()) << parts;
  }
  EXPECT_EQ(digests.finish(), std::set<std::string>())
      << "in sources.txt and not rendered any more";
}

// The whole golden text of four kernels is kept, for readers.
TEST(Renderer, GoldenTextsOfFourKernels) {
  constexpr std::string_view kWhole[] = {"sm90_d64_full_fp16", "sm80_d128_causal_bf16",
                                         "decode_sm80_d128_pages", "cpu_d128_causal_fp32"};
  const bool accept = std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr;
  std::set<std::string> names, files;
  for (const GoldenCase& c : kGoldenCases) {
    if (std::find(std::begin(kWhole), std::end(kWhole), c.name) == std::end(kWhole)) continue;
    names.insert(std::string(c.name) + ".txt");
    const std::filesystem::path path =
        std::filesystem::path(ATTUNE_GOLDEN_DIR) / (std::string(c.name) + ".txt");
    const std::string text = testing::golden_text(render_case(c).text);
    if (accept) std::ofstream(path, std::ios::binary) << text;
    EXPECT_EQ(testing::unified_diff(path, text), "")
        << path
        << " differs; ATTUNE_ACCEPT_GOLDEN=1 in this test's environment accepts what was rendered";
  }
  EXPECT_EQ(names.size(), std::size(kWhole));
  for (const auto& file : std::filesystem::directory_iterator(ATTUNE_GOLDEN_DIR))
    if (file.is_regular_file() &&
        testing::file_text(file.path()).starts_with("// SPDX"))  // a rendered source
      files.insert(file.path().filename().string());
  EXPECT_EQ(files, names);
}

// Two digests show which text changed, and its diff comes with them.
TEST(GoldenDigests, AChangedTextComesWithItsDiff) {
  if (std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr) GTEST_SKIP() << "everything is accepted";
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "golden_digests";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string text = "constexpr int kKvSlots = 2;\n", other = "constexpr int kKvSlots = 3;\n";
  std::ofstream(folder / "digests.txt") << "# a remark\n" << xxh3_128_hex(text) << " a kernel\n";
  const auto difference = [&](const std::string& name, const std::string& rendered) {
    return testing::GoldenDigests(folder / "digests.txt", folder / "kept")
        .difference(name, rendered);
  };
  EXPECT_NE(difference("a kernel", other).find("does not keep the accepted text"),
            std::string::npos);
  EXPECT_EQ(difference("a kernel", text), "");
  const std::string diff = difference("a kernel", other);
  EXPECT_NE(diff.find("-constexpr int kKvSlots = 2;\n+constexpr int kKvSlots = 3;"),
            std::string::npos)
      << diff;
  EXPECT_NE(difference("another", text).find("has no line"), std::string::npos);
  testing::GoldenDigests unasked(folder / "digests.txt", folder / "kept");
  EXPECT_EQ(unasked.finish(), std::set<std::string>{"a kernel"});
}

TEST(GoldenTexts, PreambleAndPartsAreTheWhole) {
  for (const GoldenCase& c : kGoldenCases) {
    const std::string source = render_case(c).text;
    const std::string preamble = testing::golden_preamble(source),
                      parts = testing::golden_parts(source);
    EXPECT_EQ(preamble.size() + parts.size(), testing::golden_text(source).size()) << c.name;
    EXPECT_NE(preamble.find("constexpr int kHeadDimQk"), std::string::npos) << c.name;
    EXPECT_EQ(parts.find("constexpr int kHeadDimQk"), std::string::npos) << c.name;
  }
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

// Returns a line without the commas of its code: a kernel's last parameter has none.
std::string without_commas(std::string line) {
  const size_t end = std::min(line.find("//"), line.size());
  line.erase(std::remove(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(end), ','),
             line.begin() + static_cast<std::ptrdiff_t>(end));
  return line;
}

std::set<std::string, std::less<>> parameters_of(const std::set<std::string, std::less<>>& lines) {
  std::set<std::string, std::less<>> parameters;
  for (const std::string& line : lines)
    if (line.find("__grid_constant__") != std::string::npos)
      parameters.insert(without_commas(line));
  return parameters;
}

TEST(Renderer, EachLineIsLabelledWithItsFile) {
  for (const GoldenCase& c : kGoldenCases) {
    const std::vector<testing::Section> sections = testing::sections_of(render_case(c).text);
    EXPECT_GT(sections.size(), 4U) << c.name;
    for (const testing::Section& section : sections) {
      const auto file = bundled_text(section.path);
      if (!file) continue;  // constants and generated parts
      const auto known = lines_of(*file), parameters = parameters_of(known);
      for (const std::string& line : lines_of(section.text))
        EXPECT_TRUE(line.empty() || known.count(line) != 0 ||
                    parameters.count(without_commas(line)) != 0)
            << c.name << ": \"" << line << "\" is not in " << section.path;
    }
  }
}

// The namespace stays open between files. The renderer closes it only if a file needs that, for
// example for extern "C" declarations.
TEST(Renderer, TheNamespaceIsOpenedSeldomAndClosedAsOften) {
  for (const GoldenCase& c : kGoldenCases) {
    int depth = 0, opened = 0, null_objects = 0;
    std::string_view text;
    const std::string source = render_case(c).text;
    for (text = source; !text.empty();) {
      const size_t end = std::min(text.find('\n'), text.size() - 1);
      const std::string_view line = text.substr(0, end);
      if (line == "namespace attune {") ++depth, ++opened;
      if (line == "}  // namespace attune") --depth;
      if (line == "namespace none {") ++null_objects;
      ASSERT_TRUE(depth == 0 || depth == 1) << c.name;
      text.remove_prefix(end + 1);
    }
    EXPECT_EQ(depth, 0) << c.name;
    EXPECT_LE(opened, 4 + null_objects) << c.name;
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
  const std::string parts = "cuda/sm90/";
  EXPECT_EQ(plain.count(parts + "kv_split.cuh"), 0U);
  EXPECT_EQ(plain.count(parts + "recompute_scores.cuh"), 0U);
  EXPECT_EQ(plain.count("cuda/ptx/mma.cuh"), 0U);
  EXPECT_EQ(plain.count(parts + "epilogue_words.cuh"), 0U);
  EXPECT_EQ(plain.count(parts + "epilogue_tma.cuh"), 1U);
  EXPECT_EQ(files("row_max=1").count(parts + "recompute_scores.cuh"), 1U);
  EXPECT_EQ(files("kv_splits=2,scheduler=0,kv_ring=0,kv_slots=2").count(parts + "kv_split.cuh"),
            1U);
}

TEST(Renderer, PartsForWideHeadsAreOnlyInTheirText) {
  const KernelTemplate& t = template_by_name("prefill_sm90");
  const auto source = [&](const char* head_dim) {
    return render_default(t, (std::string("dtype=bf16,heads=8,seqlen=4096,") + head_dim).c_str(),
                          "sm_90a");
  };
  const Source plain = source("head_dim=256"), wide = source("head_dim=512"),
               wide_qk = source("head_dim_qk=512,head_dim_v=64");
  for (const char* part : {"cuda/sm90/k_parts.cuh", "cuda/sm90/wide_loads.cuh"}) {
    EXPECT_EQ(files_in(plain).count(part), 0U) << part;
    EXPECT_EQ(files_in(wide).count(part), 1U) << part;
    EXPECT_EQ(files_in(wide_qk).count(part), 1U) << part;
  }
  for (const char* part : {"cuda/sm90/none/k_parts.cuh", "cuda/sm90/none/wide_loads.cuh"}) {
    EXPECT_EQ(files_in(plain).count(part), 1U) << part;
    EXPECT_EQ(files_in(wide).count(part), 0U) << part;
  }
  const auto has_slices = [](const Source& rendered) {
    return rendered.text.find("constexpr int kVSlices = ") != std::string::npos;
  };
  EXPECT_FALSE(has_slices(plain));
  EXPECT_TRUE(has_slices(wide));
  EXPECT_FALSE(has_slices(wide_qk));
  EXPECT_NE(wide.text.find("constexpr int kHeadDimV = 256;"), std::string::npos) << "a slice";
}

TEST(Renderer, SourcesAreSelfContained) {
  for (const GoldenCase& c : kGoldenCases) {
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

TEST(SourceDigest, AnEmitterChangeAtOneHeadDimChangesOnlyItsDigest) {
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

TEST(TemplateDigest, IsComputedOnce) {
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
