// SPDX-License-Identifier: Apache-2.0
// clang 19 in process: C++ source in, object code out, nothing written to disk. It is in a library
// of its own, libattune_clang.so, because loading libclang-cpp and libLLVM costs more than a first
// launch may take, and nothing else needs them. generator/cpu/plugin_compiler.cpp opens it for the
// first compile, never otherwise.
#pragma once

#include <string>
#include <vector>

#include "generator/compiler.hpp"

namespace attune {

// Returns the arguments of clang -cc1 for this arch, without the file names. Needs no clang, since
// they are part of an image's key.
std::vector<std::string> clang_arguments(const Arch& arch);

struct ClangPlugin {
  const char* version;  // of the clang in use: "clang 19.1.7"
  // Thread-safe: clang runs one source at a time. Throws kCompile.
  void (*compile)(const Source& source, const Arch& arch, KernelImage* image);
};

// The symbol that libattune_clang.so exports; its object lives as long as the process. The number
// rises when an interface across the plugin's border changes, so that a plugin of another build is
// refused.
inline constexpr const char* kClangPluginSymbol = "attune_clang_plugin_2";
using ClangPluginFunction = const ClangPlugin* (*)();

}  // namespace attune
