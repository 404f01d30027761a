// SPDX-License-Identifier: Apache-2.0
// Words of commands that messages show: what is copied from them into a shell is one word there.
#pragma once

#include <string>

namespace attune {

// One word as a shell takes it, on one line.
std::string shell_word(const std::string& text);

}  // namespace attune
