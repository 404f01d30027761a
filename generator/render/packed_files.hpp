// SPDX-License-Identifier: Apache-2.0
// The table that pack_templates.cpp writes at build time. Only source_bundle.cpp uses
// it.
#pragma once

#include <cstddef>

namespace attune {

struct PackedFile {
  const char* path;
  size_t bytes;  // of the text
};

// The texts of all files, concatenated and packed (packed_text.hpp).
struct PackedFiles {
  const unsigned char* bytes;
  size_t num_bytes;
  const PackedFile* files;
  size_t num_files;
};
PackedFiles packed_files();

}  // namespace attune
