// SPDX-License-Identifier: Apache-2.0
// DeviceFacts: the facts about a device, besides its Arch, that decisions depend on. The families
// use them for defaults, grids and predicted cost. cache/identity.hpp reads them from an opened
// device.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/core/problem/arch.hpp"

namespace attune {

struct DeviceFacts {
  int sm_count = 1;               // multiprocessors; on a CPU: threads that will run
  int64_t l2_bytes = 0;           // on a CPU: last-level cache
  double memory_bytes_per_s = 0;  // peak; 0 if unknown

  bool operator==(const DeviceFacts&) const = default;
};

// Returns text such as "132 multiprocessors, 50 MB of L2, 4.9 TB/s".
std::string to_text(const DeviceFacts& facts);

struct KnownDevice {
  std::string_view name;
  DeviceFacts facts;
};

// Returns the device to assume when kernels for `arch` are made on another machine, such as "NVIDIA
// H200" for sm_90a.
const KnownDevice& typical_device(const Arch& arch);

}  // namespace attune
