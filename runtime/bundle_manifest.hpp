// SPDX-License-Identifier: Apache-2.0
// The JSON text of a bundle's manifest. Used by bundle.cpp only; the form is shown in bundle.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/bundle.hpp"

namespace attune {

struct ManifestEntry {
  ImageKey key;
  std::string file;
  std::string sha256;
  KernelImage image;  // bytes are not part of the text
  std::vector<WinnerRecord> winners;
  uint64_t offset = 0, bytes = 0;  // of the image, in a bundle of one file; then `file` is empty
  uint64_t packed = 0;             // bytes that stand there, packed; 0: the image itself
  uint64_t stored() const { return packed > 0 ? packed : bytes; }
};

enum class ManifestTime { kNow, kNone };  // of "created"

std::string manifest_text(const std::vector<ManifestEntry>& entries, ManifestTime time);
// Throws kInvalidArgument with `path` and what is wrong.
std::vector<ManifestEntry> parse_manifest(const std::string& text, const std::string& path);

}  // namespace attune
