// SPDX-License-Identifier: Apache-2.0
// The CUDA implementation of Device, over the driver table. Made by open_device
// (runtime/engine/device.hpp).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cuda/cuda_context.hpp"
#include "runtime/engine/device.hpp"

namespace attune::cuda {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::shared_ptr<const CudaContext> context);

  Target target() const override { return Target::kCuda; }
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceFacts& facts() const override { return facts_; }
  std::string hardware() const override { return "gpu " + pci_bus_id_; }
  std::vector<Arch> archs() const override { return archs_; }
  int ordinal() const override { return context_->device(); }
  int64_t memory_bytes() const override;
  const Compiler& compiler() const override;
  std::unique_ptr<LoadedKernel> load(const KernelImage& image, const KernelSpec& spec,
                                     const LaunchStructure& structure) const override;

  void* allocate(int64_t bytes) const override;
  void release(void* memory) const noexcept override;
  void copy_to_device(void* to, const void* from, int64_t bytes) const override;
  void copy_to_host(void* to, const void* from, int64_t bytes) const override;
  void fill(void* memory, int byte, int64_t bytes, StreamHandle stream) const override;
  void fill_floats(float* memory, float value, int64_t count, StreamHandle stream) const override;
  void synchronize() const override;
  bool capturing(StreamHandle stream) const override;
  int sm_clock_mhz() const override;
  Conditions conditions() const override;
  double time_us(int launches, const std::function<void(int)>& fn) const override;

 private:
  const DriverTable& driver() const { return context_->driver(); }

  std::shared_ptr<const CudaContext> context_;
  DeviceIdentity identity_;
  DeviceFacts facts_;
  std::vector<Arch> archs_;
  std::string pci_bus_id_;
};

// Returns the archs whose cubins run on a device of this compute capability, best first: its own
// "a" form, its plain form, then lower minor versions.
std::vector<Arch> runnable_archs(int compute_capability);

// Facts about a GPU from NVML (libnvidia-ml.so.1) that the driver API does not have. The tuner
// records them with timings. The library is opened at the first call, which takes some
// milliseconds, so nothing before a launch may call it.

// Both return 0 if NVML is missing or refuses. `pci_bus_id` is that of cuDeviceGetPCIBusId.
int sm_clock_mhz(const std::string& pci_bus_id);   // at this moment
int power_limit_w(const std::string& pci_bus_id);  // enforced by the driver; whole watts

}  // namespace attune::cuda
