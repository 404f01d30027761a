// SPDX-License-Identifier: Apache-2.0
// Facts about a GPU from NVML (libnvidia-ml.so.1) that the driver API does not have. The tuner
// records them with timings. The library is opened at the first call, which takes some
// milliseconds, so nothing before a launch may call it.
#pragma once

#include <string>

namespace attune::cuda {

// Both return 0 if NVML is missing or refuses. `pci_bus_id` is that of cuDeviceGetPCIBusId.
int sm_clock_mhz(const std::string& pci_bus_id);   // at this moment
int power_limit_w(const std::string& pci_bus_id);  // enforced by the driver; whole watts

}  // namespace attune::cuda
