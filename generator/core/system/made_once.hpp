// SPDX-License-Identifier: Apache-2.0
// A value that its first reader computes. An exception that passes through std::call_once makes the
// C library load its unwinder, which ends a process without free memory. So this class does not use
// std::call_once.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

namespace attune {

// Thread-safe.
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
