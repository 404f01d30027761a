// SPDX-License-Identifier: Apache-2.0
// Look-up in the embedded template files; the table itself is written at build time by embed_templates.cmake.
#include "generator/source_bundle.hpp"

namespace attune {

std::optional<std::string_view> bundled_text(std::string_view path) {
  for (const BundledFile& file : bundled_files())
    if (file.path == path) return file.text;
  return std::nullopt;
}

}  // namespace attune
