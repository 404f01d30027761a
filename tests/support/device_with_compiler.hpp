// SPDX-License-Identifier: Apache-2.0
// Another device with a replaced compiler, for tests that count, keep or replace compiled kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/device.hpp"

namespace attune::testing {

template <class OwnCompiler>
class DeviceWithCompiler final : public Device {
 public:
  template <class... Arguments>
  explicit DeviceWithCompiler(std::shared_ptr<const Device> real, Arguments&&... of_compiler)
      : real_(std::move(real)), compiler_(std::forward<Arguments>(of_compiler)...) {}
  Target target() const override { return real_->target(); }
  const DeviceIdentity& identity() const override { return real_->identity(); }
  const DeviceFacts& facts() const override { return real_->facts(); }
  std::string hardware() const override { return real_->hardware(); }
  std::vector<Arch> archs() const override { return real_->archs(); }
  const Compiler& compiler() const override { return compiler_; }
  std::unique_ptr<LoadedKernel> load(const KernelImage& image, const KernelSpec& spec,
                                     const LaunchStructure& structure) const override {
    return real_->load(image, spec, structure);
  }
  void* allocate(int64_t bytes) const override { return real_->allocate(bytes); }
  void release(void* memory) const noexcept override { real_->release(memory); }
  void copy_to_device(void* to, const void* from, int64_t bytes) const override {
    real_->copy_to_device(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) const override {
    real_->copy_to_host(to, from, bytes);
  }
  void fill(void* memory, int byte, int64_t bytes, StreamHandle stream) const override {
    real_->fill(memory, byte, bytes, stream);
  }
  void fill_floats(float* memory, float value, int64_t count, StreamHandle stream) const override {
    real_->fill_floats(memory, value, count, stream);
  }
  void synchronize() const override { real_->synchronize(); }
  bool capturing(StreamHandle stream) const override { return real_->capturing(stream); }
  int sm_clock_mhz() const override { return real_->sm_clock_mhz(); }
  Conditions conditions() const override { return real_->conditions(); }
  double time_us(int repeats, const std::function<void(int)>& call) const override {
    return real_->time_us(repeats, call);
  }

 private:
  std::shared_ptr<const Device> real_;
  OwnCompiler compiler_;
};

}  // namespace attune::testing
