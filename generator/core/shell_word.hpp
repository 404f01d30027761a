// SPDX-License-Identifier: Apache-2.0
// Quotes words of commands in messages, so that a copied word is one word in a shell.
#pragma once

#include <string>

namespace attune {

// Returns `text` as one word of a shell, on one line.
std::string shell_word(const std::string& text);

}  // namespace attune
