// SPDX-License-Identifier: Apache-2.0
// DeviceMemory: an allocation on a device.
#pragma once

#include <cstdint>

#include "runtime/engine/device.hpp"

namespace attune {

// Owns device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const Device& device, int64_t bytes);  // throws kOutOfMemory
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  char* data() const { return static_cast<char*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  const Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace attune
