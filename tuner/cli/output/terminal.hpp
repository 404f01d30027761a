// SPDX-License-Identifier: Apache-2.0
// Output to a terminal: its width, long lines, and bytes that must not reach it. Used by output.cpp
// and progress_line.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune::cli {

// Returns the number of columns of the file descriptor's terminal; 0 if it is not a terminal.
size_t terminal_width(int fd);

// Returns the number of columns that a line takes: one per UTF-8 character.
size_t columns_of(std::string_view line);

// Writes control characters, except line ends, as \x1b: stored text may hold commands to a
// terminal.
std::string printable(std::string_view text);

// Breaks each line that is longer than `width` after spaces and commas. Continued lines are
// indented to the line's last column of text ("name      text" continues under "text"), else two
// spaces deeper than the line. width 0 leaves the text as it is.
std::string wrapped(std::string_view text, size_t width);

// Writes to stderr, unchanged. A failure (a full disk, a closed terminal) is ignored, so that the
// program's work continues.
void write_stderr(std::string_view text) noexcept;

}  // namespace attune::cli
