// SPDX-License-Identifier: Apache-2.0
// Facts, memory and timing of one CUDA device. Each call makes the device's context current while
// it runs.
#include "runtime/cuda/cuda_device.hpp"

#include <algorithm>
#include <bit>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/cuda/cuda_kernel.hpp"

namespace attune::cuda {
namespace {

int attribute(const CudaContext& context, int which) {
  int value = 0;
  check(context.driver(), context.driver().cuDeviceGetAttribute(&value, which, context.device()),
        "cuDeviceGetAttribute");
  return value;
}

std::string text_of(const CudaContext& context, Result (*get)(char*, int, Ordinal)) {
  char text[256] = {};
  check(context.driver(), get(text, sizeof text - 1, context.device()),
        "cuDeviceGetName or cuDeviceGetPCIBusId");
  return text;
}

// Returns "MIG 1g.5gb" for "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
std::string slice_of(const std::string& name) {
  const size_t at = name.find("MIG ");
  return at == std::string::npos ? "" : name.substr(at);
}

DeviceIdentity identity_of(const CudaContext& context) {
  const int capability =
      attribute(context, kAttrCapabilityMajor) * 10 + attribute(context, kAttrCapabilityMinor);
  DeviceIdentity identity;
  identity.arch = "sm_" + std::to_string(capability);
  identity.sm_count = attribute(context, kAttrMultiprocessorCount);
  identity.shared_bytes_per_block = attribute(context, kAttrSharedBytesPerBlockOptin);
  identity.registers_per_sm = attribute(context, kAttrRegistersPerSm);
  identity.l2_bytes = attribute(context, kAttrL2Bytes);
  identity.memory_bus_bits = attribute(context, kAttrMemoryBusBits);
  identity.memory_clock_khz = attribute(context, kAttrMemoryClockKhz);
  identity.name = text_of(context, context.driver().cuDeviceGetName);
  identity.slice = slice_of(identity.name);
  identity.conditions.driver = driver_version(context.driver());
  return identity;
}

struct EventTraits {
  struct Handle {
    const DriverTable* driver = nullptr;
    Event event = nullptr;
    bool operator==(const Handle&) const = default;
  };
  static Handle none() { return {}; }
  static void close(Handle handle) noexcept { handle.driver->cuEventDestroy(handle.event); }
};
using UniqueEvent = UniqueHandle<EventTraits>;

UniqueEvent make_event(const DriverTable& driver) {
  Event event = nullptr;
  check(driver, driver.cuEventCreate(&event, 0), "cuEventCreate");
  return UniqueEvent({&driver, event});
}

Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }
size_t size_of(int64_t bytes) { return static_cast<size_t>(bytes); }

}  // namespace

std::vector<Arch> runnable_archs(int compute_capability) {
  std::vector<Arch> archs;
  for (const std::string& name : known_cuda_archs()) {
    Arch arch = parse_arch(name);
    const bool same_major = arch.compute_capability / 10 == compute_capability / 10;
    const bool runs = arch.suffix.empty() ? arch.compute_capability <= compute_capability
                                          : arch.compute_capability == compute_capability;
    if (same_major && runs) archs.push_back(std::move(arch));
  }
  std::stable_sort(archs.begin(), archs.end(), [](const Arch& a, const Arch& b) {
    return a.compute_capability != b.compute_capability
               ? a.compute_capability > b.compute_capability
               : a.suffix > b.suffix;
  });
  return archs;
}

CudaDevice::CudaDevice(std::shared_ptr<const CudaContext> context) : context_(std::move(context)) {
  identity_ = identity_of(*context_);
  facts_ = identity_.facts();
  archs_ = runnable_archs(attribute(*context_, kAttrCapabilityMajor) * 10 +
                          attribute(*context_, kAttrCapabilityMinor));
  pci_bus_id_ = text_of(*context_, driver().cuDeviceGetPCIBusId);
}

const Compiler& CudaDevice::compiler() const {
  const Compiler* nvrtc = open_nvrtc_compiler();
  if (!nvrtc) throw Error(ErrorCode::kCompile, nvrtc_advice());
  return *nvrtc;
}

std::unique_ptr<LoadedKernel> CudaDevice::load(const KernelImage& image, const KernelSpec& spec,
                                               const LaunchStructure& structure) const {
  return std::make_unique<CudaKernel>(context_, image, spec, structure);
}

int64_t CudaDevice::memory_bytes() const {
  size_t bytes = 0;
  const bool read = driver().cuDeviceTotalMem(&bytes, context_->device()) == kSuccess;
  return read ? static_cast<int64_t>(bytes) : 0;
}

void* CudaDevice::allocate(int64_t bytes) const {
  const ContextScope scope(*context_);
  Address address = 0;
  check(driver(), driver().cuMemAlloc(&address, size_of(std::max<int64_t>(bytes, 1))),
        "cuMemAlloc(" + std::to_string(bytes) + " bytes)");
  return reinterpret_cast<void*>(address);
}

void CudaDevice::release(void* memory) const noexcept {
  if (!memory) return;
  Context popped = nullptr;
  const bool pushed = driver().cuCtxPushCurrent(context_->handle()) == kSuccess;
  driver().cuMemFree(address_of(memory));
  if (pushed) driver().cuCtxPopCurrent(&popped);
}

void CudaDevice::copy_to_device(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  const ContextScope scope(*context_);
  check(driver(), driver().cuMemcpyHtoD(address_of(to), from, size_of(bytes)), "cuMemcpyHtoD");
}

void CudaDevice::copy_to_host(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  const ContextScope scope(*context_);
  check(driver(), driver().cuMemcpyDtoH(to, address_of(from), size_of(bytes)), "cuMemcpyDtoH");
}

void CudaDevice::fill(void* memory, int byte, int64_t bytes, StreamHandle stream) const {
  if (bytes == 0) return;
  const ContextScope scope(*context_);
  check(driver(),
        driver().cuMemsetD8Async(address_of(memory), static_cast<unsigned char>(byte),
                                 size_of(bytes), static_cast<Stream>(stream)),
        "cuMemsetD8Async");
}

void CudaDevice::fill_floats(float* memory, float value, int64_t count, StreamHandle stream) const {
  if (count == 0) return;
  const ContextScope scope(*context_);
  check(driver(),
        driver().cuMemsetD32Async(address_of(memory), std::bit_cast<unsigned>(value),
                                  size_of(count), static_cast<Stream>(stream)),
        "cuMemsetD32Async");
}

void CudaDevice::synchronize() const {
  const ContextScope scope(*context_);
  check(driver(), driver().cuCtxSynchronize(), "cuCtxSynchronize");
}

// Returns true also on an error: the driver reports one for the legacy stream while another stream
// is being captured.
bool CudaDevice::capturing(StreamHandle stream) const {
  const ContextScope scope(*context_);
  int status = 0;
  return driver().cuStreamIsCapturing(static_cast<Stream>(stream), &status) != kSuccess ||
         status != 0;
}

int CudaDevice::sm_clock_mhz() const { return cuda::sm_clock_mhz(pci_bus_id_); }
Conditions CudaDevice::conditions() const {
  return {identity_.conditions.driver, power_limit_w(pci_bus_id_)};
}

double CudaDevice::time_us(int launches, const std::function<void(int)>& fn) const {
  const ContextScope scope(*context_);
  const UniqueEvent start = make_event(driver()), end = make_event(driver());
  check(driver(), driver().cuEventRecord(start.get().event, nullptr), "cuEventRecord");
  for (int i = 0; i < launches; ++i) fn(i);
  check(driver(), driver().cuEventRecord(end.get().event, nullptr), "cuEventRecord");
  check(driver(), driver().cuEventSynchronize(end.get().event), "cuEventSynchronize");
  float milliseconds = 0;
  check(driver(), driver().cuEventElapsedTime(&milliseconds, start.get().event, end.get().event),
        "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1000;
}

}  // namespace attune::cuda
