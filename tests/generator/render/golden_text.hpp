// SPDX-License-Identifier: Apache-2.0
// Golden texts: rendered texts are compared with digests in tests/golden, one line per text. The
// build tree keeps each accepted text, so that a changed digest can be shown as a diff.
//
// A rendered source has two texts. "preamble" is its head and its constants. "parts" is its
// generated statements, and one digest per template file without comments.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/system/digest.hpp"
#include "generator/render/renderer.hpp"

namespace attune::testing {

// A file's lines within a rendered source, with all parts of the file joined.
struct Section {
  std::string path;
  std::string text;
};

// Splits by the labels that the renderer writes. Text before the first label is the section "".
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

// Returns the texts of the sections that `is_wanted` is true for.
template <class IsWanted>
std::string golden_sections(std::string_view source, const IsWanted& is_wanted) {
  std::string text;
  for (const Section& section : sections_of(source)) {
    if (!is_wanted(section)) continue;
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

inline bool is_preamble(const Section& section) {
  return section.path.empty() || section.path == "constants of this kernel";
}
inline std::string golden_text(std::string_view source) {
  return golden_sections(source, [](const Section&) { return true; });
}
inline std::string golden_preamble(std::string_view source) {
  return golden_sections(source, is_preamble);
}
inline std::string golden_parts(std::string_view source) {
  return golden_sections(source, [](const Section& section) { return !is_preamble(section); });
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns `diff -u` of the expected and the actual text; "" if they are equal.
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

// Digests of texts by name, in one file of tests/golden: "DIGEST NAME" per line.
// ATTUNE_ACCEPT_GOLDEN=1 accepts each text that a test checks, and drops names that none did.
class GoldenDigests {
 public:
  // `kept`: the folder of the build tree for accepted texts.
  GoldenDigests(std::filesystem::path file, std::filesystem::path kept)
      : file_(std::move(file)),
        kept_(std::move(kept)),
        accepts_(std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr) {
    std::ifstream lines(file_);
    for (std::string digest, name; lines >> digest && std::getline(lines >> std::ws, name);)
      if (digest != "#") accepted_[name] = digest;
  }

  // Returns "" if the text is the accepted one; else the changes, and how to accept them.
  std::string difference(const std::string& name, const std::string& text) {
    const std::string digest = xxh3_128_hex(text);
    const std::filesystem::path kept = kept_ / (xxh3_128_hex(name) + ".txt");
    found_[name] = digest;
    const auto accepted = accepted_.find(name);
    if (accepts_ || (accepted != accepted_.end() && accepted->second == digest)) {
      std::filesystem::create_directories(kept_);
      if (file_text(kept) != text) std::ofstream(kept, std::ios::binary) << text;
      return {};
    }
    const std::string how =
        "\nATTUNE_ACCEPT_GOLDEN=1 in this test's environment accepts what was rendered\n";
    if (accepted == accepted_.end())
      return name + " has no line in " + file_.filename().string() + how + text;
    if (xxh3_128_hex(file_text(kept)) == accepted->second)
      return name + " differs" + how + unified_diff(kept, text);
    return name + " differs, and this build tree does not keep the accepted text. `bash " +
           "tests/generator/same_code.sh --texts HEAD` shows the change since that commit." + how;
  }

  // Returns names in the file that no test checked. Writes the file if changes are accepted.
  std::set<std::string> finish() {
    std::set<std::string> gone;
    for (const auto& [name, digest] : accepted_)
      if (!found_.contains(name)) gone.insert(name);
    if (!accepts_) return gone;
    std::ofstream lines(file_, std::ios::binary);
    lines << "# SPDX-License-Identifier: Apache-2.0\n"
             "# Digests of golden texts (tests/generator/render/golden_text.hpp); "
             "ATTUNE_ACCEPT_GOLDEN=1 "
             "rewrites them.\n";
    for (const auto& [name, digest] : found_) lines << digest << " " << name << "\n";
    return {};
  }

 private:
  std::filesystem::path file_, kept_;
  bool accepts_;
  std::map<std::string, std::string> accepted_, found_;
};

}  // namespace attune::testing
