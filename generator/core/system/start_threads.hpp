// SPDX-License-Identifier: Apache-2.0
// Starts several threads on a machine that may refuse some (pids.max, RLIMIT_NPROC, memory). Used
// by every pool of the project.
#pragma once

#include <exception>
#include <thread>
#include <vector>

namespace attune {

// Starts at most `count` threads, which run body(0), body(1), ... If the system refuses a thread,
// returns the threads started so far, perhaps none. The caller must join them. Throws
// std::bad_alloc only before the first thread.
template <class Body>
[[nodiscard]] std::vector<std::thread> start_threads(int count, const Body& body) {
  std::vector<std::thread> threads;
  threads.reserve(count > 0 ? static_cast<size_t>(count) : 0);
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([body, i] { body(i); });
  } catch (const std::exception&) {  // system_error or bad_alloc: no more threads
  }
  return threads;
}

}  // namespace attune
