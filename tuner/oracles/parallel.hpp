// SPDX-License-Identifier: Apache-2.0
// Runs independent parts of an oracle's work on the host's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "generator/core/system/threads.hpp"

namespace attune {

// Calls body(0) to body(count - 1), each once, on this thread and others. The order is not defined,
// so each call must write to a place of its own. Throws the first exception of a call, after all
// threads have ended.
template <class Body>
void for_each_index(int64_t count, const Body& body) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](int) {
    try {
      for (int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const auto others = static_cast<int64_t>(std::thread::hardware_concurrency()) - 1;
  std::vector<std::thread> threads =
      start_threads(static_cast<int>(std::min(others, count - 1)), work);
  work(-1);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace attune
