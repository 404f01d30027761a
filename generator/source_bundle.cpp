// SPDX-License-Identifier: Apache-2.0
// Look-up in the embedded template files; the table itself is written at build time by embed_templates.cmake.
#include "generator/source_bundle.hpp"

#include <deque>
#include <utility>

namespace attune {
namespace {

std::deque<std::pair<std::string, std::string>>& added_files() {
  static std::deque<std::pair<std::string, std::string>> files;
  return files;
}

}  // namespace

void add_bundled_file(std::string path, std::string text) {
  added_files().emplace_back(std::move(path), std::move(text));
}

std::optional<std::string_view> bundled_text(std::string_view path) {
  for (const BundledFile& file : bundled_files())
    if (file.path == path) return file.text;
  for (const auto& [added, text] : added_files())
    if (added == path) return text;
  return std::nullopt;
}

}  // namespace attune
