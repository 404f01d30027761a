// SPDX-License-Identifier: Apache-2.0
// DeviceMemory: an allocation on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/engine/device.hpp"

namespace attune {

// Owns device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // Throws kOutOfMemory.
  DeviceMemory(const Device& device, int64_t bytes)
      : device_(&device), data_(device.allocate(std::max(bytes, kAlignment))), bytes_(bytes) {}
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ != nullptr) device_->release(data_);
  }
  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr int64_t kAlignment = 256;

  const Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace attune
