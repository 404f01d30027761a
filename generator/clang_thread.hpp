// SPDX-License-Identifier: Apache-2.0
// Runs clang inside somebody's program: on a separate thread with a deep stack, with LLVM's
// failures as exceptions. Part of libattune_clang.so; used by clang_compiler.cpp.
#pragma once

#include <functional>

namespace attune {

// Calls `body` on a thread with a stack of 8 MB and all signals blocked, and waits for it. If no
// thread can be started, uses the caller's. Throws what `body` throws. If LLVM would end the
// process (no memory, an internal error), a LlvmFailure leaves `body` instead. It skips the
// destructors of LLVM's own frames, so LLVM must not be used again in this process.
void run_on_clang_thread(const std::function<void()>& body);

struct LlvmFailure {
  const char* reason;  // a copy that is never freed
};

}  // namespace attune
