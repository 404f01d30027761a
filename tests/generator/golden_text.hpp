// SPDX-License-Identifier: Apache-2.0
// Rendered sources in the form of tests/golden: what a reviewer reads (head, constants, generated
// parts) stands there as it is, a section of a template file as one digest of its text without
// comments. So a golden file changes where the constants or generated statements of a kernel do,
// and names the files of which it holds another text than before.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/digest.hpp"
#include "generator/source_text.hpp"

namespace attune::testing {

// A file's lines within a rendered source, all its parts in a row.
struct Section {
  std::string path;
  std::string text;
};

// By the labels that the renderer writes; what stands before the first one is the section "".
inline std::vector<Section> sections_of(std::string_view source) {
  constexpr std::string_view kLabel = "// ---- ", kContinued = ", continued";
  std::vector<Section> sections{{}};
  std::map<std::string, size_t, std::less<>> place{{"", 0}};
  size_t current = 0;
  while (!source.empty()) {
    const size_t end = std::min(source.find('\n'), source.size() - 1) + 1;
    const std::string_view line = source.substr(0, end);
    source.remove_prefix(end);
    if (!line.starts_with(kLabel)) {
      // The end of the namespace depends on the text that follows.
      if (line != "namespace attune {\n" && line != "}  // namespace attune\n")
        sections[current].text += line;
      continue;
    }
    std::string_view path = line.substr(kLabel.size(), line.size() - kLabel.size() - 1);
    if (path.ends_with(kContinued)) path.remove_suffix(kContinued.size());
    const auto [found, is_new] = place.emplace(path, sections.size());
    if (is_new) sections.push_back({std::string(path), {}});
    current = found->second;
  }
  return sections;
}

inline std::string golden_text(std::string_view source) {
  std::string text;
  for (const Section& section : sections_of(source)) {
    const bool is_file =
        section.path.find('.') != std::string::npos && !section.path.starts_with("generated/");
    if (section.path.empty())
      text += section.text;
    else if (is_file)
      text += "// ---- " + section.path + "  " + xxh3_128_hex(comment_free(section.text)) + "\n";
    else
      text += "// ---- " + section.path + "\n" + section.text;
  }
  return text;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `diff -u` of what is expected and what came; empty when both are the same.
inline std::string unified_diff(const std::filesystem::path& expected, const std::string& actual) {
  if (file_text(expected) == actual) return {};
  std::string name = (std::filesystem::temp_directory_path() / "golden-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return "differs, and " + name + " cannot be written";
  ::close(file);
  std::ofstream(name, std::ios::binary) << actual;
  const std::string command =
      "diff -uN --label expected --label rendered '" + expected.string() + "' '" + name + "'";
  std::string text;
  if (FILE* const diff = ::popen(command.c_str(), "r")) {
    for (int c = std::fgetc(diff); c != EOF; c = std::fgetc(diff)) text += static_cast<char>(c);
    ::pclose(diff);
  }
  std::filesystem::remove(name);
  return text.empty() ? "differs, and diff says nothing" : text;
}

}  // namespace attune::testing
