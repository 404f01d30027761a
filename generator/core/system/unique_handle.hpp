// SPDX-License-Identifier: Apache-2.0
// Owner of one foreign handle. Traits: `using Handle`, `static Handle none()`, `static void
// close(Handle) noexcept`.
#pragma once

#include <utility>

namespace attune {

template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueHandle() { reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Traits::none(); }
  [[nodiscard]] Handle release() { return std::exchange(handle_, Traits::none()); }
  void reset(Handle handle = Traits::none()) {
    const Handle old = std::exchange(handle_, handle);
    if (old != Traits::none()) Traits::close(old);
  }

 private:
  Handle handle_ = Traits::none();
};

}  // namespace attune
