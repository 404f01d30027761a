// SPDX-License-Identifier: Apache-2.0
// See clang_compiler.hpp. LLVM is built without exceptions but with unwind tables, so its error
// handlers may throw an exception through its frames.
#include "generator/compile/clang_compiler.hpp"

#include <llvm/Support/ErrorHandling.h>
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

namespace attune {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;

thread_local bool is_clang_thread = false;

// For other users of the same libLLVM, returns, so that LLVM ends the process as usual.
void on_fatal_error(void*, const char* reason, bool) {
  if (is_clang_thread) throw LlvmFailure{::strdup(reason)};
}
void on_bad_alloc(void*, const char*, bool) { throw std::bad_alloc(); }

struct Handlers {
  Handlers() {
    llvm::install_fatal_error_handler(on_fatal_error);
    llvm::install_bad_alloc_error_handler(on_bad_alloc);
    is_clang_thread = true;
  }
  ~Handlers() {
    is_clang_thread = false;
    llvm::remove_bad_alloc_error_handler();
    llvm::remove_fatal_error_handler();
  }
};

struct Job {
  const std::function<void()>& body;
  std::exception_ptr thrown;
};

void* work(void* pointer) {
  Job& job = *static_cast<Job*>(pointer);
  try {
    const Handlers handlers;
    job.body();
  } catch (const std::bad_alloc&) {
    job.thrown = std::make_exception_ptr(LlvmFailure{"out of memory"});
  } catch (...) {
    job.thrown = std::current_exception();
  }
  return nullptr;
}

// Returns false if the thread cannot be started.
bool start(Job* job, pthread_t* thread) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
  const int failed = pthread_create(thread, &attributes, work, job);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return failed == 0;
}

}  // namespace

void run_on_clang_thread(const std::function<void()>& body) {
  Job job{body, nullptr};
  pthread_t thread;
  if (start(&job, &thread))
    pthread_join(thread, nullptr);
  else
    work(&job);
  if (job.thrown) std::rethrow_exception(job.thrown);
}

}  // namespace attune
