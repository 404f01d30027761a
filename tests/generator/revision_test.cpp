// SPDX-License-Identifier: Apache-2.0
// Stored kernels of one revision of a template run with every later text of that revision. So what
// the host gives them must stay: arguments, steps, shared memory, grids, workspace. Their digests
// are in tests/golden/launches.txt. A changed digest needs KernelTemplate::revision() raised; only
// then does ATTUNE_ACCEPT_GOLDEN=1 rewrite the row.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "generator/core/system/digest.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tests/generator/render/golden_cases.hpp"
#include "tests/generator/render/golden_text.hpp"

namespace attune {
namespace {

const char* const kFile = ATTUNE_GOLDEN_DIR "/launches.txt";
constexpr const char* kHeader =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Digests of launches (tests/generator/revision_test.cpp): case, revision, digest, config.\n";

struct Row {
  int revision = 0;
  std::string digest, config;
};
using Rows = std::map<std::string, Row>;  // by the case's name

Rows read_rows() {
  Rows rows;
  std::ifstream file(kFile);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    std::string name;
    Row row;
    words >> name >> row.revision >> row.digest >> row.config;
    rows[name] = row;
  }
  return rows;
}

std::string text_of(const StepStructure& step) {
  std::string text = fmt::format("{} threads {} shared {} cluster {} early {}", step.entry,
                                 step.threads, step.shared_bytes, step.cluster, step.early);
  for (const ArgumentPart part : step.parts)
    text += fmt::format(" part {}", static_cast<int>(part));
  for (const TensorMapPlan& map : step.tensor_maps) {
    const auto* const operand = std::get_if<Operand>(&map.tensor);
    text += fmt::format(
        " map {} {} {}x{} {} {} {} {}", operand != nullptr,
        operand != nullptr ? static_cast<size_t>(*operand) : std::get<Workspace>(map.tensor).index,
        map.box_columns, map.box_rows, map.swizzle_bytes, map.box_heads, map.fetches_around,
        map.of_pages);
  }
  return text + "\n";
}

std::string text_of(const LaunchStructure& structure) {
  std::string text;
  for (const StepStructure& step : structure.steps) text += text_of(step);
  for (const WorkspaceTensor& tensor : structure.workspace)
    text += fmt::format("workspace {} {} {} {}\n", tensor.name, static_cast<int>(tensor.dtype),
                        tensor.zeroed, tensor.alignment);
  return text + fmt::format("main {} units {} map {} rounds {} {}\n", structure.main_step,
                            structure.keeps_score_units,
                            structure.map ? static_cast<int>(*structure.map) : -1,
                            structure.rounds.begin, structure.rounds.end);
}

std::string text_of(const LaunchSizes& sizes) {
  std::string text = fmt::format("rounds {} {} {}\n", sizes.rounds.heads, sizes.rounds.of_round,
                                 sizes.rounds.stride);
  for (const StepSize& step : sizes.steps)
    text += fmt::format("grid {} {} {} tiles {}\n", step.grid_x, step.grid_y, step.grid_z,
                        step.num_tiles);
  for (const TensorExtents& extents : sizes.workspace)
    text += fmt::format("extents {} {} {} {}\n", extents.columns, extents.rows, extents.heads,
                        extents.batch);
  return text;
}

// Returns the files of the argument structs that a kernel on a GPU takes.
std::set<std::string> argument_files(const LaunchStructure& structure) {
  static const std::map<ArgumentPart, std::string> files{
      {ArgumentPart::kMap, "attention_args.h"},   {ArgumentPart::kScores, "score_args.h"},
      {ArgumentPart::kDropout, "dropout_args.h"}, {ArgumentPart::kBase, "attention_args.h"},
      {ArgumentPart::kScales, "scale_args.h"},    {ArgumentPart::kGradients, "gradient_args.h"},
      {ArgumentPart::kCache, "cache_args.h"},     {ArgumentPart::kAppend, "append_args.h"},
      {ArgumentPart::kRound, "round_args.h"},     {ArgumentPart::kLists, "key_list_args.h"},
      {ArgumentPart::kGroups, "nibble_rows.h"}};
  std::set<std::string> found;
  for (const StepStructure& step : structure.steps)
    for (const ArgumentPart part : step.parts) found.insert("shared/" + files.at(part));
  return found;
}

// Returns the structs of arguments of a kernel, as its source declares them, in alphabetical order:
// the order of includes means nothing. A kernel on a CPU takes all of them.
std::string argument_structs(const std::string& source, const LaunchStructure& structure) {
  const std::set<std::string> taken = argument_files(structure);
  std::map<std::string, std::string> texts;
  bool takes_all = false;
  for (const testing::Section& section : testing::sections_of(source)) {
    takes_all = takes_all || section.path == "shared/kernel_arguments.h";
    if (section.path.starts_with("shared/") &&
        (section.path.ends_with("_args.h") || section.path.ends_with("_arguments.h")))
      texts[section.path] = comment_free(section.text);
  }
  if (!takes_all)
    std::erase_if(texts, [&](const auto& text) { return !taken.contains(text.first); });
  std::string all;
  for (const auto& [path, text] : texts) all += path + "\n" + text;
  return all;
}

// Returns everything that the host gives a kernel of this config.
std::string launch_text(const GoldenCase& golden, const KernelTemplate& one, const Config& config) {
  const Problem problem = parse_problem(golden.problem);
  const KernelSpec spec = spec_of(problem);
  const Arch arch = parse_arch(golden.arch);
  Shape larger = shape_of(problem);
  larger.batch *= 3;
  const LaunchStructure structure = one.structure(spec, config);
  std::string text = argument_structs(render(one, spec, arch, config).text, structure);
  text += text_of(structure);
  for (const Shape& shape : {shape_of(problem), larger})
    text += text_of(one.sizes(spec, config, shape, typical_device(arch).facts));
  return text;
}

TEST(Revision, AChangedLaunchNeedsANewOne) {
  const Rows stored = read_rows();
  const bool accepts = std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr;
  std::string fresh = kHeader;
  for (const GoldenCase& golden : kGoldenCases) {
    const KernelTemplate& one = template_by_name(golden.template_name);
    const Problem problem = parse_problem(golden.problem);
    const Arch arch = parse_arch(golden.arch);
    const auto before = stored.find(golden.name);
    // The stored config, because defaults may change freely. A stored winner with a config that is
    // no longer legal is not used.
    Config config =
        one.default_config(spec_of(problem), arch, shape_of(problem), typical_device(arch).facts);
    bool is_legal = false;
    if (before != stored.end() && before->second.revision == one.revision()) {
      const Config known = parse_config(before->second.config);
      is_legal = !one.space(spec_of(problem), arch).broken(known);
      if (is_legal) config = known;
    }
    const std::string digest = xxh3_128_hex(launch_text(golden, one, config));
    fresh += fmt::format("{} {} {} {}\n", golden.name, one.revision(), digest, config.to_text());
    if (is_legal)
      EXPECT_EQ(digest, before->second.digest)
          << golden.name << ": arguments or launch of " << golden.template_name
          << " changed; raise its revision(), or stored kernels of revision " << one.revision()
          << " run with arguments that they do not know";
    else if (!accepts)
      ADD_FAILURE() << golden.name << ": no row of revision " << one.revision()
                    << " with a legal config; ATTUNE_ACCEPT_GOLDEN=1 adds it";
  }
  if (accepts && !HasFailure()) std::ofstream(kFile) << fresh;
}

TEST(Revision, IsTheBeginningOfADigest) {
  for (const KernelTemplate* one : all_templates())
    EXPECT_TRUE(template_digest(*one).starts_with(fmt::format("r{}.", one->revision())));
  EXPECT_TRUE(same_revision("r1.a", "r1.b"));
  EXPECT_FALSE(same_revision("r1.a", "r2.a"));
  EXPECT_FALSE(same_revision("r1.a", "r11.a"));
  EXPECT_FALSE(same_revision("0123", "4567")) << "of attune 0.2, without revisions";
  EXPECT_TRUE(same_revision("0123", "0123"));
}

TEST(Revision, TellsTheStateOfARecord) {
  const KernelTemplate& one = *all_templates().front();
  const std::string name(one.name()), revision = fmt::format("r{}.", one.revision());
  EXPECT_EQ(template_state(name, template_digest(one)), TemplateState::kSame);
  EXPECT_EQ(template_state(name, revision + "other"), TemplateState::kReworded);
  EXPECT_EQ(template_state(name, "r99.other"), TemplateState::kChanged);
  EXPECT_EQ(template_state(name, "0123"), TemplateState::kChanged);
  EXPECT_EQ(template_state("gone", revision), TemplateState::kGone);
}

}  // namespace
}  // namespace attune
