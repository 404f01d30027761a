// SPDX-License-Identifier: Apache-2.0
// A value that the first who asks makes. std::call_once is not used for it: an exception that passes
// through it makes the C library load its unwinder, which ends a process whose memory is gone.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

namespace attune {

// Thread-safe.
template <class T>
class MadeOnce {
 public:
  // Returns the value; make() gives it. When make throws, the next one who asks makes it.
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
