// SPDX-License-Identifier: Apache-2.0
// The compiler of the CPU target: finds and opens the plugin libattune_clang.so, which holds clang
// and LLVM. Used by cpu_toolchain.cpp.
#pragma once

#include <memory>
#include <string>

#include "generator/compile/compiler.hpp"

namespace attune {

// Opens the plugin at the first compile or call of version(). After a failure the next call tries
// again.
std::unique_ptr<const Compiler> plugin_compiler();
// True if the plugin can be found. Otherwise `why` gets the places tried and how to install it.
bool plugin_is_here(std::string* why);

}  // namespace attune
