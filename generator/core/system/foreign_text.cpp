// SPDX-License-Identifier: Apache-2.0
// Finds UTF-8 characters and control characters; see foreign_text.hpp.
#include "generator/core/system/foreign_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

namespace attune {
namespace {

// Returns the length in bytes of the UTF-8 character at the beginning of `text`, or 0 if there is
// no valid one.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  // The range of the second byte excludes overlong forms, surrogates and code points beyond
  // U+10FFFF.
  const uint8_t lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (size_t i = 2; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return bytes;
}

}  // namespace

size_t utf8_end(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) return at;
    at += bytes;
  }
  return at;
}

std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return line;
}

void make_printable(char* text, size_t length) noexcept {
  for (size_t at = 0; at < length;) {
    const size_t bytes = character_bytes({text + at, length - at});
    const auto first = static_cast<uint8_t>(text[at]);
    // C0 and DEL are one byte; C1 (U+0080 to U+009F) begins with c2.
    const bool is_control =
        (bytes == 1 && (first < 0x20 || first == 0x7f) && first != '\n') ||
        (bytes == 2 && first == 0xc2 && static_cast<uint8_t>(text[at + 1]) < 0xa0);
    const size_t step = bytes == 0 ? 1 : bytes;
    if (bytes == 0 || is_control) std::fill_n(text + at, step, '?');
    at += step;
  }
}

std::string shell_word(const std::string& text) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_=,./:-+").find(c) != std::string_view::npos;
  });
  if (is_plain) return text;
  std::string word;
  bool is_escaped = false;
  for (const char c : text) {
    is_escaped = is_escaped || c == '\n' || c == '\'' || c == '\\';
    word += c == '\n' ? "\\n" : c == '\'' ? "\\'" : c == '\\' ? "\\\\" : std::string(1, c);
  }
  return (is_escaped ? "$'" : "'") + word + "'";
}

}  // namespace attune
