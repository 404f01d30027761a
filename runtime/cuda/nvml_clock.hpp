// SPDX-License-Identifier: Apache-2.0
// Reads the current SM clock through NVML (libnvidia-ml.so.1), opened at the first reading: the
// tuner notes it beside timings.
#pragma once

#include <string>

namespace attune::cuda {

// In MHz; 0 when NVML is missing or refuses. `pci_bus_id` as cuDeviceGetPCIBusId gives it.
int sm_clock_mhz(const std::string& pci_bus_id);

}  // namespace attune::cuda
