// SPDX-License-Identifier: Apache-2.0
// Allocates and frees device memory; see device_memory.hpp.
#include "tuner/measure/device_memory.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

DeviceMemory::DeviceMemory(const Device& device, int64_t bytes)
    : device_(&device), data_(device.allocate(std::max(bytes, kAlignment))), bytes_(bytes) {}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) device_->release(data_);
}

}  // namespace attune
