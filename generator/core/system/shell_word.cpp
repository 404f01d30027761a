// SPDX-License-Identifier: Apache-2.0
// See shell_word.hpp.
#include "generator/core/system/shell_word.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace attune {

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
