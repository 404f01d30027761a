// SPDX-License-Identifier: Apache-2.0
// How text meets a terminal: its width, long lines, bytes that must not reach it. Used by
// output.cpp and progress_line.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune::cli {

// Columns of the terminal behind the file descriptor; 0 when there is none.
size_t terminal_width(int fd);

// Columns that a line takes: characters of UTF-8.
size_t columns_of(std::string_view line);

// Writes control characters, except line ends, as \x1b: stored text may hold commands to a
// terminal.
std::string printable(std::string_view text);

// Breaks each line that is longer than `width` behind spaces and commas. The rest of a line is
// indented to the line's last column of text ("name      text" continues under "text"), else by two
// more than the line. width 0: as it is.
std::string wrapped(std::string_view text, size_t width);

// To stderr, as it is. Where nobody takes it (a full disk, a terminal that is gone), it is lost: what
// the program is about goes on.
void write_stderr(std::string_view text) noexcept;

}  // namespace attune::cli
