// SPDX-License-Identifier: Apache-2.0
// The header of an emitted source; see emit_page.hpp.
#include "tuner/cli/output/emit_page.hpp"

#include <fmt/format.h>

#include "runtime/engine/plan.hpp"
#include "tuner/cli/program_options.hpp"

namespace attune::cli {
namespace {

// Describes the launch. Grids of persistent kernels depend on the number of multiprocessors.
std::string launch_line(const KernelChoice& choice) {
  const auto text_for = [&](const DeviceFacts& facts) {
    return launch_text(
        choice.kernel_template->launch(choice.spec, choice.config, choice.shape, facts));
  };
  if (choice.arch.target == Target::kCpu) return "one call for each thread: args, thread, threads";
  std::string text = text_for(choice.facts);
  if (text == text_for(DeviceFacts{})) return text;
  return fmt::format("{} (on {} multiprocessors; the grid depends on their number)", text,
                     choice.facts.sm_count);
}

const char* name_of(ArgumentPart part) {
  switch (part) {
    case ArgumentPart::kMap:
      return "map";
    case ArgumentPart::kScores:
      return "scores";
    case ArgumentPart::kBase:
      return "args";
    case ArgumentPart::kScales:
      return "scales";
    case ArgumentPart::kGradients:
      return "gradients";
    case ArgumentPart::kDropout:
      return "dropout";
    case ArgumentPart::kCache:
      return "cache";
    case ArgumentPart::kAppend:
      return "append";
    case ArgumentPart::kRound:
      return "round";
    case ArgumentPart::kLists:
      return "lists";
    case ArgumentPart::kGroups:
      break;
  }
  return "groups";
}

std::string entry_line(const KernelChoice& choice, const std::string& main) {
  std::string text;
  for (const StepStructure& step :
       choice.kernel_template->structure(choice.spec, choice.config).steps) {
    text += fmt::format("{}{} (", text.empty() ? "" : ", then ", entry_in(main, step.entry));
    const char* separator = "";
    for (const ArgumentPart part : step.parts) {
      text += fmt::format("{}{}", separator, name_of(part));
      separator = ", ";
    }
    if (const size_t maps = step.tensor_maps.size(); maps > 0)
      text += fmt::format(", {} tensor maps", maps);
    text += ")";
  }
  return text;
}

std::string compile_line(const Arch& arch, const std::string& file) {
  if (arch.target == Target::kCuda)
    return fmt::format("nvcc -arch={} -std=c++17 -use_fast_math -w -cubin -o kernel.cubin {}",
                       arch.name(), file);
  return fmt::format("clang++ -march={} -std=c++20 -O3 -ffp-contract=fast -Wno-psabi -c {}",
                     arch.cpu, file);
}

// Returns a problem's programs as comments. Removes a backslash at the end of a line, which would
// turn the next line into a comment too.
std::string program_lines(const Problem& problem) {
  std::string lines, texts = program_texts(problem);
  for (size_t begin = 0; begin < texts.size();) {
    const size_t end = texts.find('\n', begin);
    std::string line = texts.substr(begin, end - begin);
    line.erase(line.find_last_not_of("\\ \t\r") + 1);
    lines += "// " + line + "\n";
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string with_header(const Source& source, const Problem& problem, const KernelChoice& choice,
                        const std::string& config_from, const std::string& device,
                        const std::string& file) {
  const std::string header =
      fmt::format(
          "// {} for {}, written by attune {}\n// problem  {}\n// config   {} ({})\n// device   "
          "{}\n// "
          "entry    {}\n"
          "// launch   {}\n// compile  {}\n",
          choice.kernel_template->name(), choice.arch.name(), ATTUNE_VERSION, to_text(problem),
          choice.config.to_text(), config_from, device, entry_line(choice, source.entry),
          launch_line(choice), compile_line(choice.arch, file)) +
      program_lines(problem);
  std::string text = source.text;
  return text.insert(text.find('\n') + 1, header);
}

}  // namespace attune::cli
