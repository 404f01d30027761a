// SPDX-License-Identifier: Apache-2.0
// A device without hardware for tests of the engine. It claims to be an sm_90 with its two archs,
// "compiles" by counting, and records launches. The templates it serves are the real ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"

namespace attune::testing {

// Counts compiles by source text. `refuse` may return a reason why a source does not compile.
class FakeCompiler final : public Compiler {
 public:
  std::string version() const override { return "fake 1.0"; }
  std::string options(const Arch&) const override { return "-fake"; }
  KernelImage compile(const Source& source, const Arch& arch) const override {
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    const std::lock_guard lock(mutex_);
    ++compiles_[source.text + arch.name()];
    if (refuse)
      if (auto why = refuse(source)) throw Error(ErrorCode::kCompile, *why);
    KernelImage image;
    image.bytes = "image of " + xxh3_128_hex(source.text + arch.name());
    image.info.registers = 168;
    return image;
  }
  int total() const {
    const std::lock_guard lock(mutex_);
    int sum = 0;
    for (const auto& [text, count] : compiles_) sum += count;
    return sum;
  }
  int most_of_one() const {
    const std::lock_guard lock(mutex_);
    int most = 0;
    for (const auto& [text, count] : compiles_) most = std::max(most, count);
    return most;
  }

  std::chrono::milliseconds delay{0};
  std::function<std::optional<std::string>(const Source&)> refuse;

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, int> compiles_;
};

struct FakeLaunches {
  std::atomic<int> loads{0}, launches{0}, live_kernels{0};
  std::mutex mutex;
  KernelArguments last_args{};
  LaunchPlan last_plan;
};

class FakeKernel final : public LoadedKernel {
 public:
  FakeKernel(std::shared_ptr<FakeLaunches> seen, ImageInfo info)
      : seen_(std::move(seen)), info_(info) {
    ++seen_->live_kernels;
  }
  ~FakeKernel() override { --seen_->live_kernels; }
  const ImageInfo& info() const override { return info_; }
  void launch(const LaunchPlan& plan, KernelArguments& args, StreamHandle) const override {
    const std::lock_guard lock(seen_->mutex);
    ++seen_->launches;
    seen_->last_args = args;
    seen_->last_plan = plan;
  }

 private:
  std::shared_ptr<FakeLaunches> seen_;
  ImageInfo info_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice() : FakeDevice({parse_arch("sm_90a"), parse_arch("sm_90")}, "sm_90") {}
  explicit FakeDevice(const Arch& arch) : FakeDevice({arch}, arch.name()) {}

  Target target() const override { return Target::kCuda; }
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceFacts& facts() const override { return facts_; }
  std::string hardware() const override { return "fake"; }
  std::vector<Arch> archs() const override { return archs_; }
  const Compiler& compiler() const override {
    if (no_compiler) throw Error(ErrorCode::kCompile, "there is no compiler in this test");
    return compiler_;
  }
  std::unique_ptr<LoadedKernel> load(const KernelImage& image, const KernelSpec&,
                                     const LaunchStructure&) const override {
    if (!image.bytes.starts_with("image of "))
      throw Error(ErrorCode::kInvalidArgument, "the image is not one of this device");
    ++seen->loads;
    return std::make_unique<FakeKernel>(seen, image.info);
  }
  void* allocate(int64_t bytes) const override {
    return ::operator new(static_cast<size_t>(bytes));
  }
  void release(void* memory) const noexcept override { ::operator delete(memory); }
  void copy_to_device(void* to, const void* from, int64_t bytes) const override {
    memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) const override {
    memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill(void* memory, int byte, int64_t bytes, StreamHandle) const override {
    memset(memory, byte, static_cast<size_t>(bytes));
  }
  void fill_floats(float* memory, float value, int64_t count, StreamHandle) const override {
    std::fill_n(memory, count, value);
  }
  void synchronize() const override {}
  bool capturing(StreamHandle) const override { return is_capturing; }
  int sm_clock_mhz() const override { return 0; }
  double time_us(int, const std::function<void(int)>&) const override { return 1; }

  bool is_capturing = false;
  FakeCompiler compiler_;
  bool no_compiler = false;
  std::shared_ptr<FakeLaunches> seen = std::make_shared<FakeLaunches>();

 private:
  FakeDevice(std::vector<Arch> archs, std::string name) : archs_(std::move(archs)) {
    identity_.arch = std::move(name);
    identity_.sm_count = 132;
    identity_.shared_bytes_per_block = 232448;
    identity_.registers_per_sm = 65536;
    identity_.l2_bytes = 50 << 20;
    identity_.name = "Fake H200";
    identity_.conditions = {"580.1", 700};
  }

  std::vector<Arch> archs_;
  DeviceIdentity identity_;
  DeviceFacts facts_{132, 50 << 20};
};

}  // namespace attune::testing
