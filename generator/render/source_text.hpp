// SPDX-License-Identifier: Apache-2.0
// Removes parts of C++ or CUDA text that compilers ignore. Identities are digests of the result, so
// that a changed comment changes no identity (renderer.hpp).
#pragma once

#include <string>
#include <string_view>

namespace attune {

// Removes comments, blanks at line ends and empty lines. String and character literals stay
// unchanged.
std::string comment_free(std::string_view text);

}  // namespace attune
