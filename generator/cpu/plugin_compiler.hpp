// SPDX-License-Identifier: Apache-2.0
// The compiler behind the CPU target: finds and opens the plugin libattune_clang.so, which holds clang and
// LLVM. Used by cpu_toolchain.cpp.
#pragma once

#include <memory>
#include <string>

#include "generator/compiler.hpp"

namespace attune {

// Opens the plugin when it first compiles or is asked for clang's version; a failure is tried again at
// the next call.
std::unique_ptr<const Compiler> plugin_compiler();
// True if the plugin's file is found; `why` says else what was tried and how to get it.
bool plugin_is_here(std::string* why);

}  // namespace attune
