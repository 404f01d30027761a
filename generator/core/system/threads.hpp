// SPDX-License-Identifier: Apache-2.0
// Threads on a machine that may refuse some, and values that many threads read. Used by every pool
// of the project.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
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

// A value that its first reader computes. An exception that passes through std::call_once makes the
// C library load its unwinder, which ends a process without free memory. So this class does not use
// std::call_once. Thread-safe.
template <class T>
class MadeOnce {
 public:
  // Returns the value of make(). If make throws, the next reader calls its own make.
  template <class Make>
  const T& get(const Make& make) const {
    if (const T* const made = made_.load(std::memory_order_acquire)) return *made;
    const std::lock_guard lock(mutex_);
    if (!value_) value_.emplace(make());
    made_.store(&*value_, std::memory_order_release);
    return *value_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::optional<T> value_;
  mutable std::atomic<const T*> made_{nullptr};
};

}  // namespace attune
