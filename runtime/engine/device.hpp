// SPDX-License-Identifier: Apache-2.0
// Device: the interface to a GPU or CPU that runs kernels, for the engine and the tuner. cuda/
// implements it over the driver, which is opened by dlopen, cpu/ over the thread pool and the
// loader of host objects. Tests implement a fake. Any number of threads may use a Device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/identity.hpp"
#include "generator/compile/compiler.hpp"
#include "generator/kernel_template.hpp"

namespace attune {

// A stream of the device: CUstream on CUDA. The CPU ignores it, because a launch there returns when
// the work is done.
using StreamHandle = void*;

// An image that is loaded into a device. Immutable and thread-safe; the destructor unloads it.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  virtual const ImageInfo& info() const = 0;  // on CUDA from the driver
  // Enqueues all steps of the plan and sets args.num_tiles for each. The plan must have the
  // structure with which the image was loaded. Never allocates, compiles, locks or synchronises;
  // safe in the capture of a CUDA graph.
  virtual void launch(const LaunchPlan& plan, KernelArguments& args, StreamHandle stream) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Target target() const = 0;
  virtual const DeviceIdentity& identity() const = 0;
  virtual const DeviceFacts& facts() const = 0;
  // Returns a name of the hardware that is the same in all processes: "cpu", "gpu 0000:3b:00.0".
  // Devices of one name disturb each other's timings: for instance slices of one GPU share its
  // clocks.
  virtual std::string hardware() const = 0;
  // Returns the archs whose images run here, best first: {"sm_90a", "sm_90"} on an H200, {"sm_89",
  // "sm_86", "sm_80"} on an L4. Machine code runs only on later minor versions of its major
  // version.
  virtual std::vector<Arch> archs() const = 0;
  virtual int ordinal() const { return -1; }          // N of cuda:N; -1 on a CPU
  virtual int64_t memory_bytes() const { return 0; }  // in all; 0 = cannot be read
  // Returns the compiler, which it opens on first use. Throws kCompile if there is none; the
  // message says how to get one.
  virtual const Compiler& compiler() const = 0;
  // Loads an image. `structure` has the kernels of the image and their arguments, `spec` the
  // element types of operands. Neither depends on the shape, so a loaded kernel serves all shapes.
  // Throws kDriver or kInvalidArgument if the image is not for this device. The kernel may outlive
  // the Device.
  virtual std::unique_ptr<LoadedKernel> load(const KernelImage& image, const KernelSpec& spec,
                                             const LaunchStructure& structure) const = 0;

  // Memory and timing, for the tuner, bench and check. The runtime itself uses only the caller's
  // memory.
  virtual void* allocate(int64_t bytes) const = 0;  // throws kOutOfMemory
  virtual void release(void* memory) const noexcept = 0;
  virtual void copy_to_device(void* to, const void* from, int64_t bytes) const = 0;
  virtual void copy_to_host(void* to, const void* from, int64_t bytes) const = 0;
  virtual void fill(void* memory, int byte, int64_t bytes, StreamHandle stream) const = 0;
  // Enqueues the fill like a launch; safe in the capture of a CUDA graph.
  virtual void fill_floats(float* memory, float value, int64_t count,
                           StreamHandle stream) const = 0;
  virtual void synchronize() const = 0;  // throws kDriver if a launch failed
  // True if `stream` is recording into a CUDA graph: then nothing may wait for the device.
  virtual bool capturing(StreamHandle) const { return false; }
  virtual int sm_clock_mhz() const = 0;  // 0 = cannot be read
  // Returns identity().conditions, completed by values from a library (NVML) that takes some
  // milliseconds to open. Do not call it on the way to a launch.
  virtual Conditions conditions() const { return identity().conditions; }
  // Returns the elapsed microseconds of `launches` calls of fn, by device events (CUDA) or a
  // monotonic clock (CPU).
  virtual double time_us(int launches, const std::function<void(int)>& fn) const = 0;
};

// Opens "auto" (CUDA if there is a driver and a device, else the CPU), "cuda" (the current
// context's device, else the first), "cuda:N", "cpu" (one thread per core) or "cpu:N" (N threads,
// at most 1024). Throws kInvalidArgument for other names, kDriver or kCompile if the target is not
// available.
std::shared_ptr<const Device> open_device(std::string_view target);

// Returns the number of CUDA devices; 0, with a sentence in `why`, if there is no driver.
int cuda_device_count(std::string* why = nullptr);

}  // namespace attune
