// SPDX-License-Identifier: Apache-2.0
// Compiles C++ source to object code with clang 19 inside the process, without writing files. Part
// of a separate library, libattune_clang.so: loading libclang-cpp and libLLVM takes longer than a
// first launch may take. generator/compile/cpu_toolchain.cpp opens the library for the first
// compile only.
#pragma once

#include <functional>
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

// Runs clang inside a foreign process: on a separate thread with a large stack, with LLVM's fatal
// errors as exceptions. Part of libattune_clang.so; used by clang_compiler.cpp.

// Calls `body` on a thread with a stack of 8 MB and all signals blocked, and waits for it. Uses the
// calling thread if no thread can be started. Throws what `body` throws. If LLVM would end the
// process (no memory, an internal error), throws LlvmFailure. That skips the destructors of LLVM's
// own frames, so LLVM must not be used again in this process.
void run_on_clang_thread(const std::function<void()>& body);

struct LlvmFailure {
  const char* reason;  // a copy that is never freed
};

}  // namespace attune
