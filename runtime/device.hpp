// SPDX-License-Identifier: Apache-2.0
// Device: where kernels run, as the engine and the tuner see it. cuda/ implements it over the
// dlopen'd driver, cpu/ over the thread pool and the loader of host objects; tests implement a fake. A Device
// is used by any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/identity.hpp"
#include "generator/compiler.hpp"
#include "generator/kernel_template.hpp"

namespace attune {

// A stream of the device: CUstream on CUDA; ignored on the CPU, where run returns when the work is
// done.
using StreamHandle = void*;

// An image loaded once into a device. Immutable, thread-safe, unloads on destruction.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  virtual const ImageInfo& info() const = 0;  // CUDA: as the driver reports it
  // Enqueues all steps of the plan, whose structure is the one that was loaded, and sets
  // args.num_tiles for each. Never allocates, compiles, locks or synchronises; safe in CUDA-graph
  // capture.
  virtual void launch(const LaunchPlan& plan, KernelArguments& args, StreamHandle stream) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Target target() const = 0;
  virtual const DeviceIdentity& identity() const = 0;
  virtual const DeviceFacts& facts() const = 0;
  // Names the piece of this machine, whatever the process calls it: "cpu", "gpu 0000:3b:00.0".
  // Those that share it disturb each other's timings; slices of one GPU share its clocks.
  virtual std::string hardware() const = 0;
  // Archs that images may be made for here, best first: {"sm_90a", "sm_90"} on an H200, {"sm_89",
  // "sm_86", "sm_80"} on an L4 (machine code runs on later minor versions of the same major one
  // only).
  virtual std::vector<Arch> archs() const = 0;
  virtual int ordinal() const { return -1; }  // N of cuda:N; -1 where devices have no numbers
  // Throws kCompile when there is no compiler (its message says how to get one). Opens it on first
  // use.
  virtual const Compiler& compiler() const = 0;
  // `structure` says which kernels of the image are called and what each takes, `spec` the element
  // types of operands. Neither depends on the shape, so a loaded kernel serves all shapes. Throws
  // kDriver or kInvalidArgument when the image is not for this device. The kernel keeps alive what
  // it needs of the device.
  virtual std::unique_ptr<LoadedKernel> load(const KernelImage& image, const KernelSpec& spec,
                                             const LaunchStructure& structure) const = 0;

  // Plain memory and time, for the tuner, bench and check; the runtime's own calls use the caller's
  // memory.
  virtual void* allocate(int64_t bytes) const = 0;  // throws kOutOfMemory
  virtual void release(void* memory) const noexcept = 0;
  virtual void copy_to_device(void* to, const void* from, int64_t bytes) const = 0;
  virtual void copy_to_host(void* to, const void* from, int64_t bytes) const = 0;
  virtual void fill(void* memory, int byte, int64_t bytes, StreamHandle stream) const = 0;
  // Enqueued as a launch is; safe in CUDA-graph capture.
  virtual void fill_floats(float* memory, float value, int64_t count,
                           StreamHandle stream) const = 0;
  virtual void synchronize() const = 0;  // throws kDriver when a launch has failed
  // Whether `stream` records into a CUDA graph now: nothing may wait for the device then.
  virtual bool capturing(StreamHandle) const { return false; }
  virtual int sm_clock_mhz() const = 0;  // 0 = cannot be read
  // identity().conditions, with what only a library that takes time to open knows: not for the way
  // to a launch.
  virtual Conditions conditions() const { return identity().conditions; }
  // Elapsed microseconds of `launches` calls of fn, by device events (CUDA) or a monotonic clock
  // (CPU).
  virtual double time_us(int launches, const std::function<void(int)>& fn) const = 0;
};

}  // namespace attune
