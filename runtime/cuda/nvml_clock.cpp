// SPDX-License-Identifier: Apache-2.0
// Reading the clock through NVML, opened at run time; see nvml_clock.hpp.
#include "runtime/cuda/nvml_clock.hpp"

#include <dlfcn.h>

namespace attune::cuda {
namespace {

using NvmlDevice = void*;
constexpr int kNvmlClockSm = 1;  // NVML_CLOCK_SM

struct Nvml {
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  bool usable = false;
};

Nvml open() {
  Nvml nvml;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return nvml;
  nvml.init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  nvml.by_bus_id = reinterpret_cast<int (*)(const char*, NvmlDevice*)>(
      dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  nvml.clock = reinterpret_cast<int (*)(NvmlDevice, int, unsigned*)>(
      dlsym(library, "nvmlDeviceGetClockInfo"));
  nvml.usable = nvml.init && nvml.by_bus_id && nvml.clock && nvml.init() == 0;
  return nvml;
}

}  // namespace

int sm_clock_mhz(const std::string& pci_bus_id) {
  static const Nvml nvml = open();
  NvmlDevice device = nullptr;
  unsigned mhz = 0;
  if (!nvml.usable || nvml.by_bus_id(pci_bus_id.c_str(), &device) != 0) return 0;
  return nvml.clock(device, kNvmlClockSm, &mhz) == 0 ? static_cast<int>(mhz) : 0;
}

}  // namespace attune::cuda
