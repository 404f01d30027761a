// SPDX-License-Identifier: Apache-2.0
// Replaces the C library's pthread_create; see thread_limit.hpp.
#include "tests/support/thread_limit.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace {
std::atomic<int> granted{INT_MAX}, refused_calls{0};
}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (granted.fetch_sub(1) > 0) return real(thread, attributes, start, argument);
  ++granted;
  ++refused_calls;
  return EAGAIN;
}

namespace attune::testing {

ThreadLimit::ThreadLimit(int number) {
  refused_calls = 0;
  granted = number;
}

ThreadLimit::~ThreadLimit() { granted = INT_MAX; }

int ThreadLimit::refused() const { return refused_calls; }

}  // namespace attune::testing
