// SPDX-License-Identifier: Apache-2.0
// The compiler of the CPU target: finds and opens the plugin libattune_clang.so, which holds clang
// and LLVM. Used by cpu_toolchain.cpp.
#pragma once

#include <memory>
#include <string>

#include "generator/compiler.hpp"

namespace attune {

// Opens the plugin when it first compiles or is asked for clang's version. After a failure the next
// call tries again.
std::unique_ptr<const Compiler> plugin_compiler();
// True if the plugin's file is found. Else `why` says what was tried and how to get it.
bool plugin_is_here(std::string* why);

}  // namespace attune
