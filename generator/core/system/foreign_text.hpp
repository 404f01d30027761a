// SPDX-License-Identifier: Apache-2.0
// Checks, cleans and quotes text from outside (programs, stores, device names) before it goes into
// stores, manifests, pages, terminals and suggested commands.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune {

// Returns the offset of the first byte that is not valid UTF-8, or text.size() (RFC 3629: no
// overlong forms, no surrogates, nothing beyond U+10FFFF).
size_t utf8_end(std::string_view text);

// Returns the text with its line breaks and tabs as spaces: a stored name must not forge a line.
std::string one_line(std::string_view text);

// Replaces each byte that is not UTF-8, and each control character except '\n', with '?'. This
// keeps the bytes of files and variables in errors and log messages away from terminals. Allocates
// nothing.
void make_printable(char* text, size_t length) noexcept;

// Returns `text` quoted as one shell word, on one line.
std::string shell_word(const std::string& text);

}  // namespace attune
