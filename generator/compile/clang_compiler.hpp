// SPDX-License-Identifier: Apache-2.0
// Compiles C++ source to object code with clang 19 inside the process, without writing files. Part
// of a separate library, libattune_clang.so: loading libclang-cpp and libLLVM takes longer than a
// first launch may take. generator/compile/cpu/plugin_compiler.cpp opens the library for the first
// compile only.
#pragma once

#include <string>
#include <vector>

#include "generator/compile/compiler.hpp"

namespace attune {

// Returns the arguments of clang -cc1 for this arch, without file names. Works without clang, since
// the arguments are part of an image's key.
std::vector<std::string> clang_arguments(const Arch& arch);

struct ClangPlugin {
  const char* version;  // of the clang in use: "clang 19.1.7"
  // Thread-safe: clang runs one source at a time. Throws kCompile.
  void (*compile)(const Source& source, const Arch& arch, KernelImage* image);
};

// The symbol that libattune_clang.so exports; its object lives as long as the process. The number
// in the name increases when the interface to the plugin changes, so that a plugin of another build
// is refused.
inline constexpr const char* kClangPluginSymbol = "attune_clang_plugin_2";
using ClangPluginFunction = const ClangPlugin* (*)();

}  // namespace attune
