// SPDX-License-Identifier: Apache-2.0
// A GPU that is not here; see kernel_choice.hpp.
#include "tuner/cli/kernel_choice.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace attune::cli {
namespace {

DeviceIdentity identity_of(const NamedArch& named) {
  const Arch& arch = named.arch;
  constexpr int kBusBits = 4096;
  constexpr double kBytesPerClock = 2.0 * kBusBits / 8;  // two edges carry data
  const KnownDevice& typical = named.device();
  DeviceIdentity identity;
  identity.arch = fmt::format("sm_{}", arch.compute_capability);
  identity.sm_count = typical.facts.sm_count;
  identity.l2_bytes = typical.facts.l2_bytes;
  identity.shared_bytes_per_block = arch.shared_bytes_per_block;
  identity.registers_per_sm = arch.registers_per_sm;
  identity.memory_bus_bits = kBusBits;
  identity.memory_clock_khz =
      static_cast<int>(typical.facts.memory_bytes_per_s / kBytesPerClock / 1e3);
  identity.name = fmt::format("{}, which is not here", typical.name);
  return identity;
}

class ArchDevice final : public Device {
 public:
  explicit ArchDevice(const NamedArch& named)
      : arch_(named.arch), identity_(identity_of(named)), facts_(named.device().facts) {}

  Target target() const override { return Target::kCuda; }
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceFacts& facts() const override { return facts_; }
  std::string hardware() const override { return "none"; }
  std::vector<Arch> archs() const override {
    return cuda::runnable_archs(arch_.compute_capability);
  }
  const Compiler& compiler() const override { return compiler_for(arch_); }
  std::unique_ptr<LoadedKernel> load(const KernelImage&, const KernelSpec&,
                                     const LaunchStructure&) const override {
    refuse();
  }
  void* allocate(int64_t) const override { refuse(); }
  void release(void*) const noexcept override {}
  void copy_to_device(void*, const void*, int64_t) const override { refuse(); }
  void copy_to_host(void*, const void*, int64_t) const override { refuse(); }
  void fill(void*, int, int64_t, StreamHandle) const override { refuse(); }
  void fill_floats(float*, float, int64_t, StreamHandle) const override { refuse(); }
  void synchronize() const override { refuse(); }
  int sm_clock_mhz() const override { return 0; }
  double time_us(int, const std::function<void(int)>&) const override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    throw Error(ErrorCode::kDriver,
                fmt::format("no device of arch {} is here; must be a device of this machine",
                            arch_.name()));
  }

  const Arch arch_;
  const DeviceIdentity identity_;
  const DeviceFacts facts_;
};

}  // namespace

std::shared_ptr<const Device> device_of_arch(const NamedArch& named) {
  const Arch& arch = named.arch;
  if (arch.target != Target::kCuda)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--arch is {}; must be the arch of a GPU (for a CPU, --target cpu)",
                            arch.name()));
  return std::make_shared<ArchDevice>(named);
}

}  // namespace attune::cli
