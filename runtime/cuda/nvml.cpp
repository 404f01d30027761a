// SPDX-License-Identifier: Apache-2.0
// Readings through NVML, opened at run time; see cuda_device.hpp.
#include "runtime/cuda/cuda_device.hpp"

#include <dlfcn.h>

namespace attune::cuda {
namespace {

using NvmlDevice = void*;
constexpr int kNvmlClockSm = 1;  // NVML_CLOCK_SM
constexpr unsigned kMilliwatts = 1000;

struct Nvml {
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power_limit)(NvmlDevice, unsigned*) = nullptr;
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
  nvml.power_limit = reinterpret_cast<int (*)(NvmlDevice, unsigned*)>(
      dlsym(library, "nvmlDeviceGetEnforcedPowerLimit"));
  nvml.usable = nvml.init && nvml.by_bus_id && nvml.init() == 0;
  return nvml;
}

// Calls `read(nvml, device, &value)`. Returns the value that it wrote, or 0 if it returns false or
// NVML does not know the device.
template <class Read>
unsigned reading(const std::string& pci_bus_id, const Read& read) {
  static const Nvml nvml = open();
  NvmlDevice device = nullptr;
  unsigned value = 0;
  if (!nvml.usable || nvml.by_bus_id(pci_bus_id.c_str(), &device) != 0) return 0;
  return read(nvml, device, &value) ? value : 0;
}

}  // namespace

int sm_clock_mhz(const std::string& pci_bus_id) {
  return static_cast<int>(
      reading(pci_bus_id, [](const Nvml& nvml, NvmlDevice device, unsigned* mhz) {
        return nvml.clock && nvml.clock(device, kNvmlClockSm, mhz) == 0;
      }));
}

int power_limit_w(const std::string& pci_bus_id) {
  const unsigned milliwatts =
      reading(pci_bus_id, [](const Nvml& nvml, NvmlDevice device, unsigned* limit) {
        return nvml.power_limit && nvml.power_limit(device, limit) == 0;
      });
  return static_cast<int>((milliwatts + kMilliwatts / 2) / kMilliwatts);
}

}  // namespace attune::cuda
