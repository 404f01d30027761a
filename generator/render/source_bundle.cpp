// SPDX-License-Identifier: Apache-2.0
// Looks up embedded template files, unpacked once. pack_templates.cpp writes the table
// at build time.
#include "generator/render/inliner.hpp"

#include <deque>
#include <utility>

#include "generator/render/packed_text.hpp"

namespace attune {
namespace {

std::deque<std::pair<std::string, std::string>>& added_files() {
  static std::deque<std::pair<std::string, std::string>> files;
  return files;
}

// The texts of all files, which were packed together.
struct Unpacked {
  std::string text;
  std::vector<BundledFile> files;

  Unpacked() {
    const PackedFiles packed = packed_files();
    size_t size = 0;
    for (size_t i = 0; i < packed.num_files; ++i) size += packed.files[i].bytes;
    text = unpack({reinterpret_cast<const char*>(packed.bytes), packed.num_bytes}, size);
    size_t at = 0;
    for (size_t i = 0; i < packed.num_files; ++i) {
      files.push_back({packed.files[i].path, {text.data() + at, packed.files[i].bytes}});
      at += packed.files[i].bytes;
    }
  }
};

}  // namespace

const std::vector<BundledFile>& bundled_files() {
  static const Unpacked all;
  return all.files;
}

void add_bundled_file(std::string path, std::string text) {
  added_files().emplace_back(std::move(path), std::move(text));
}

std::optional<std::string_view> bundled_text(std::string_view path) {
  for (const auto& [added, text] : added_files())
    if (added == path) return text;
  for (const BundledFile& file : bundled_files())
    if (file.path == path) return file.text;
  return std::nullopt;
}

}  // namespace attune
