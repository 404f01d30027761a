// SPDX-License-Identifier: Apache-2.0
// Where clang may run inside somebody's program: on a thread of its own with a deep stack, with
// LLVM's failures as exceptions. Part of libattune_clang.so; used by clang_compiler.cpp.
#pragma once

#include <functional>

namespace attune {

// Calls `body` on a thread with a stack of 8 MB and all signals blocked (on the caller's, where no
// thread can be started) and waits for it. Throws what `body` throws. Where LLVM would end the
// process (no memory, an internal error), a LlvmFailure leaves `body` instead. It skips the
// destructors of LLVM's own frames, so LLVM must not be used again in this process.
void run_on_clang_thread(const std::function<void()>& body);

struct LlvmFailure {
  const char* reason;  // a copy that stays
};

}  // namespace attune
