// SPDX-License-Identifier: Apache-2.0
// The JSON text of a bundle's manifest. Used by bundle.cpp and bundle_file.cpp; bundle.hpp shows
// the form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/bundles/bundle.hpp"

namespace attune {

struct ManifestEntry {
  ImageKey key;
  std::string file;
  std::string sha256;
  KernelImage image;  // bytes are not part of the text
  std::vector<WinnerRecord> winners;
  uint64_t offset = 0, bytes = 0;  // in a bundle of one file, whose `file` is empty
  uint64_t packed = 0;             // bytes of the packed image; 0 = it is not packed
  uint64_t stored() const { return packed > 0 ? packed : bytes; }
};

enum class ManifestTime { kNow, kNone };  // value of "created"

std::string manifest_text(const std::vector<ManifestEntry>& entries, ManifestTime time);
// Returns the entries of a manifest. Throws kInvalidArgument with `path` and the fault.
std::vector<ManifestEntry> parse_manifest(const std::string& text, const std::string& path);

}  // namespace attune
