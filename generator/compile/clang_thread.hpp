// SPDX-License-Identifier: Apache-2.0
// Runs clang inside a foreign process: on a separate thread with a large stack, with LLVM's fatal
// errors as exceptions. Part of libattune_clang.so; used by clang_compiler.cpp.
#pragma once

#include <functional>

namespace attune {

// Calls `body` on a thread with a stack of 8 MB and all signals blocked, and waits for it. Uses the
// calling thread if no thread can be started. Throws what `body` throws. If LLVM would end the
// process (no memory, an internal error), throws LlvmFailure. That skips the destructors of LLVM's
// own frames, so LLVM must not be used again in this process.
void run_on_clang_thread(const std::function<void()>& body);

struct LlvmFailure {
  const char* reason;  // a copy that is never freed
};

}  // namespace attune
