// SPDX-License-Identifier: Apache-2.0
// The files of templates/, embedded into the library at build time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

struct BundledFile {
  std::string_view path;  // "cuda/ptx/mma.cuh"
  std::string_view text;
};

const std::vector<BundledFile>& bundled_files();
std::optional<std::string_view> bundled_text(std::string_view path);
// Adds a file from outside templates/, such as a test's, or replaces one. Must be called before any
// other function of the library.
void add_bundled_file(std::string path, std::string text);

}  // namespace attune
