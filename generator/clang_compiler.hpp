// SPDX-License-Identifier: Apache-2.0
// clang 19 in process: C++ source in, object code out, nothing written to disk. It lives in a
// library of its own, libattune_clang.so, because loading libclang-cpp and libLLVM costs more than
// a first launch may take: the CPU plugin (runtime/cpu/cpu_plugin.cpp) opens it for the first
// compile and never otherwise.
#pragma once

#include <string>
#include <vector>

#include "generator/compiler.hpp"

namespace attune {

// Version of the clang that libattune_clang.so is built with, known without opening it:
// "clang 19.1.7".
std::string clang_version();
// Arguments of clang -cc1 for this arch, without the file names.
std::vector<std::string> clang_arguments(const Arch& arch);

// What libattune_clang.so exports under this name. Thread-safe: clang runs one source at a time.
// Throws kCompile.
inline constexpr const char* kClangCompileSymbol = "attune_clang_compile_1";
using ClangCompileFunction = void (*)(const Source& source, const Arch& arch, KernelImage* image);

}  // namespace attune
