// SPDX-License-Identifier: Apache-2.0
// Quotes words of suggested commands, so that a shell reads a copied word as one word.
#pragma once

#include <string>

namespace attune {

// Returns `text` quoted as one shell word, on one line.
std::string shell_word(const std::string& text);

}  // namespace attune
