// SPDX-License-Identifier: Apache-2.0
// Text that others wrote (programs, stores, names of devices), and that goes on into stores,
// manifests, pages and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attune {

// Returns the place of the first bytes that are not UTF-8 (RFC 3629: no overlong forms, no
// surrogates, nothing beyond U+10FFFF), or text.size().
size_t utf8_end(std::string_view text);

// Returns the text with its line breaks and tabs as spaces: a stored name must not forge a line.
std::string one_line(std::string_view text);

// Replaces each byte that is not UTF-8, and each control character but '\n', by '?'. An error or a
// log message must not carry a file's or a variable's bytes to a terminal. Allocates nothing.
void make_printable(char* text, size_t length) noexcept;

}  // namespace attune
