// SPDX-License-Identifier: Apache-2.0
// Memory between two guard pages. A kernel that reads or writes after its operand's end (or, if
// placed so, before its begin) ends the test; writes between operand and page are detected. Used by
// host_run.cpp.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace attune::testing {

enum class Against { kEnd, kBegin };  // which side of the data touches a guard page

class GuardedBuffer {
 public:
  // The data begins at a multiple of `alignment`. With kEnd, at most alignment - 1 bytes are free
  // before the guard page.
  GuardedBuffer(size_t size, size_t alignment, Against against) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inside_ = std::max(page, (size + alignment + page - 1) / page * page);
    mapped_ = inside_ + 2 * page;
    void* at = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(at);
    first_ = base_ + page;
    if (mprotect(first_, inside_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(first_, kCanary, inside_);
    data_ = first_;
    if (against == Against::kEnd) data_ += (inside_ - size) / alignment * alignment;
  }
  GuardedBuffer(const void* bytes, size_t size, size_t alignment, Against against)
      : GuardedBuffer(size, alignment, against) {
    if (size > 0) std::memcpy(data_, bytes, size);
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  template <class T = std::byte>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size() const { return size_; }
  // True if nothing was written around the data.
  bool intact() const {
    const auto untouched = [](const std::byte* begin, const std::byte* end) {
      return std::all_of(begin, end, [](std::byte b) { return b == std::byte{kCanary}; });
    };
    return untouched(first_, data_) && untouched(data_ + size_, first_ + inside_);
  }

 private:
  static constexpr unsigned char kCanary = 0xC5;
  size_t size_, inside_, mapped_;
  std::byte *base_, *first_, *data_;
};

}  // namespace attune::testing
