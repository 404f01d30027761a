// SPDX-License-Identifier: Apache-2.0
// Packs the embedded templates, because their text would be a third of the library.
// pack_templates.cpp packs at build time; source_bundle.cpp unpacks once, when the
// first kernel is rendered.
//
// Packed bytes are a sequence of pieces. Each begins with a control byte c:
//   | c          | what follows                                                                   |
//   |------------|--------------------------------------------------------------------------------|
//   | 0 to 127   | c + 1 bytes, as they are                                                       |
//   | 128 to 254 | distance (3 bytes, little-endian): copy c - 128 + 4 bytes from that far back   |
//   | 255        | distance, then the number of bytes to copy (2 bytes, little-endian)            |
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace attune {

inline constexpr size_t kShortestCopy = 4;
inline constexpr size_t kLongestShortCopy = 254 - 128 + kShortestCopy;

// Throws std::runtime_error for bytes that are not a result of pack_templates.
inline std::string unpack(std::string_view packed, size_t size) {
  std::string text;
  text.reserve(size);
  const auto number = [&](size_t at, size_t bytes) {
    size_t value = 0;
    for (size_t i = bytes; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(packed[at + i]);
    return value;
  };
  const auto need = [&](bool sound) {
    if (!sound) throw std::runtime_error("packed text is damaged");
  };
  for (size_t at = 0; at < packed.size();) {
    const size_t control = number(at++, 1);
    if (control < 128) {
      need(control < packed.size() - at);
      text.append(packed, at, control + 1);
      at += control + 1;
      continue;
    }
    const bool is_long = control == 255;
    need(packed.size() - at >= (is_long ? 5u : 3u));
    const size_t distance = number(at, 3);
    const size_t count = is_long ? number(at + 3, 2) : control - 128 + kShortestCopy;
    at += is_long ? 5 : 3;
    need(distance > 0 && distance <= text.size() && text.size() + count <= size);
    for (size_t i = 0; i < count; ++i) text += text[text.size() - distance];
  }
  need(text.size() == size);
  return text;
}

// The table that pack_templates.cpp writes at build time. Only source_bundle.cpp uses
// it.

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
