// SPDX-License-Identifier: Apache-2.0
// The text of C++ or CUDA without what no compiler sees. Identities are digests of such text, so that a changed comment
// changes no identity (renderer.hpp).
#pragma once

#include <string>
#include <string_view>

namespace attune {

// Without comments, blanks at line ends and empty lines. String and character literals stay as they are.
std::string comment_free(std::string_view text);

}  // namespace attune
