// SPDX-License-Identifier: Apache-2.0
// Terminal width, line breaks and escaped control bytes; see terminal.hpp.
#include "tuner/cli/output/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace attune::cli {
namespace {

constexpr size_t kNarrowest = 20;  // a terminal that claims to be narrower is not believed
constexpr size_t kUsualWidth = 80;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Returns the length of a control character at `at`, else 0: C0, DEL, or C1 in UTF-8 (0xC2 0x80 to
// 0xC2 0x9F).
size_t control_length(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if ((byte < 0x20 && byte != '\n') || byte == 0x7F) return 1;
  if (byte != 0xC2 || at + 1 == text.size()) return 0;
  const auto next = static_cast<unsigned char>(text[at + 1]);
  return next >= 0x80 && next < 0xA0 ? 2 : 0;
}

// Returns the length in bytes of the longest prefix of `text` that takes at most `columns`.
size_t bytes_of_columns(std::string_view text, size_t columns) {
  size_t bytes = 0;
  for (size_t taken = 0; bytes < text.size(); ++bytes)
    if (!continues_character(text[bytes]) && taken++ == columns) break;
  return bytes;
}

// Returns the indent of continued lines: the beginning of the last column of text in the left half.
// Two or more spaces separate columns.
size_t hanging_indent(std::string_view line, size_t width) {
  const size_t leading = std::min(line.find_first_not_of(' '), line.size());
  size_t indent = leading + 2;
  for (size_t at = leading; (at = line.find("  ", at)) != std::string_view::npos;) {
    at = line.find_first_not_of(' ', at);
    if (at == std::string_view::npos || at > width / 2) break;
    indent = at;
  }
  return std::min(indent, width / 2);
}

// Returns the length in bytes of the first piece of `text`, at most `columns` wide. It ends at the
// last space, or after the last comma, that fits; without either, it takes all columns.
size_t piece_length(std::string_view text, size_t columns) {
  const size_t limit = bytes_of_columns(text, columns);
  if (limit == text.size()) return limit;
  const size_t space = text.find_last_of(' ', limit);
  const size_t comma = text.find_last_of(',', limit - 1);
  const size_t after_comma = comma == std::string_view::npos ? 0 : comma + 1;
  const size_t best = std::max(space == std::string_view::npos ? 0 : space, after_comma);
  return best == 0 ? limit : best;
}

void add_wrapped_line(std::string_view line, size_t width, std::string* out) {
  const size_t indent = hanging_indent(line, width);
  const size_t leading = std::min(line.find_first_not_of(' '), line.size());
  const size_t first_indent = std::min(leading, width / 2);
  out->append(first_indent, ' ');
  line.remove_prefix(leading);
  for (size_t room = width - first_indent; !line.empty(); room = width - indent) {
    const size_t length = piece_length(line, room);
    out->append(line.substr(0, length)).append("\n");
    line.remove_prefix(length);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.empty()) out->append(indent, ' ');
  }
}

}  // namespace

size_t terminal_width(int fd) {
  if (::isatty(fd) != 1) return 0;
  winsize size{};
  const bool known = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? std::max<size_t>(size.ws_col, kNarrowest) : kUsualWidth;
}

size_t columns_of(std::string_view line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return !continues_character(c); }));
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = control_length(text, at);
    for (const char c : text.substr(at, length))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    if (length == 0) out += text[at];
    at += std::max<size_t>(length, 1);
  }
  return out;
}

std::string wrapped(std::string_view text, size_t width) {
  if (width == 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (columns_of(line) <= width)
      out.append(line).append("\n");
    else
      add_wrapped_line(line, width, &out);
    const bool has_end = end < text.size();
    if (!has_end) out.pop_back();  // the text's last line has no line end
    text.remove_prefix(has_end ? end + 1 : end);
  }
  return out;
}

void write_stderr(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace attune::cli
