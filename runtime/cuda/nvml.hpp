// SPDX-License-Identifier: Apache-2.0
// What NVML (libnvidia-ml.so.1) knows of a GPU and the driver API does not: the tuner notes it
// beside timings. The library is opened at the first question, which takes some milliseconds, so
// nothing on the way to a launch asks.
#pragma once

#include <string>

namespace attune::cuda {

// Both are 0 when NVML is missing or refuses. `pci_bus_id` as cuDeviceGetPCIBusId gives it.
int sm_clock_mhz(const std::string& pci_bus_id);   // now
int power_limit_w(const std::string& pci_bus_id);  // that the driver enforces, whole watts

}  // namespace attune::cuda
