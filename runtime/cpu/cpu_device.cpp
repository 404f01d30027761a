// SPDX-License-Identifier: Apache-2.0
// The CPU as a Device: memory is host memory, a launch calls the kernel on each thread of the pool,
// and the stream is ignored.
#include "runtime/cpu/cpu_device.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "runtime/cpu/thread_pool.hpp"

namespace attune {
namespace {

constexpr size_t kAlignment = 256;

int usable_cores() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

int64_t last_level_cache_bytes() {
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (const long bytes = sysconf(level); bytes > 0) return bytes;
  return 0;
}

std::string marketing_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  cpuinfo.exceptions(std::ios::badbit);  // without memory, throw: the name must not differ
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown";
}

DeviceIdentity identity_of(const Arch& arch, int threads) {
  DeviceIdentity identity;
  identity.arch = arch.name();
  identity.sm_count = threads;
  identity.l2_bytes = last_level_cache_bytes();
  identity.slice = fmt::format("{}", fmt::join(arch.features, ","));
  identity.name = marketing_name();
  return identity;
}

// The pool of one process. A child after fork has the object but none of its threads. The caller
// then does all work, and the pool is neither used nor destroyed.
struct ForkedPool {
  explicit ForkedPool(int threads) : pool(new ThreadPool(threads)), owner(getpid()) {}
  ~ForkedPool() {
    if (getpid() == owner) delete pool;
  }
  ForkedPool(const ForkedPool&) = delete;
  ForkedPool& operator=(const ForkedPool&) = delete;

  void run(const ThreadPool::Work& work) const {
    if (getpid() == owner) return pool->run(work);
    for (int thread = 0; thread < pool->num_threads(); ++thread) work(thread, pool->num_threads());
  }

  ThreadPool* const pool;
  const pid_t owner;
};

// Returns a pool with as many threads as the system grants. Runs on fewer threads are slower, but
// correct.
std::shared_ptr<const ForkedPool> make_pool(int threads) {
  auto made = std::make_shared<const ForkedPool>(threads);
  if (const int granted = made->pool->num_threads(); granted < threads)
    log(LogCode::kFewerThreads,
        fmt::format("cpu: the system grants {} of {} threads (see ulimit -u, ulimit -v and the "
                    "container's pids limit); kernels run on those",
                    granted, threads));
  return made;
}

class CpuKernel final : public LoadedKernel {
 public:
  CpuKernel(std::shared_ptr<const ForkedPool> pool, std::unique_ptr<HostKernel> code,
            ImageInfo info)
      : pool_(std::move(pool)), code_(std::move(code)), info_(std::move(info)) {}

  const ImageInfo& info() const override { return info_; }
  // Zeroes the counters in the workspace at each launch, which costs almost nothing, so that the
  // workspace needs no preparation. Threads wait for each other after each step.
  void launch(const LaunchPlan& plan, KernelArguments& args, StreamHandle) const override {
    if (plan.zeroed_bytes > 0)
      std::memset(args.workspace, 0, static_cast<size_t>(plan.zeroed_bytes));
    plan.each_launch(args, [this](size_t step, KernelArguments& with) {
      const HostKernel::Function kernel = code_->function(step);
      pool_->run(
          [kernel, &with](int thread, int num_threads) { kernel(&with, thread, num_threads); });
    });
  }

 private:
  const std::shared_ptr<const ForkedPool> pool_;
  const std::unique_ptr<HostKernel> code_;
  const ImageInfo info_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(const CpuToolchain& toolchain, int threads)
      : toolchain_(toolchain),
        pool_(make_pool(threads)),
        arch_(toolchain.host_arch()),
        identity_(identity_of(arch_, pool_->pool->num_threads())),
        facts_(identity_.facts()) {}

  Target target() const override { return Target::kCpu; }
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceFacts& facts() const override { return facts_; }
  std::string hardware() const override { return "cpu"; }
  std::vector<Arch> archs() const override { return {arch_}; }
  const Compiler& compiler() const override { return toolchain_.compiler(); }
  int64_t memory_bytes() const override {
    return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  }

  std::unique_ptr<LoadedKernel> load(const KernelImage& image, const KernelSpec&,
                                     const LaunchStructure& structure) const override {
    if (image.format != ImageFormat::kHostObject)
      throw Error(ErrorCode::kInvalidArgument, "the image is a cubin; the CPU loads host objects");
    std::vector<std::string> entries;
    for (const StepStructure& step : structure.steps)
      entries.push_back(entry_in(image.entry, step.entry));
    return std::make_unique<CpuKernel>(pool_, toolchain_.load(image.bytes, entries), image.info);
  }

  void* allocate(int64_t bytes) const override {
    const size_t rounded = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + kAlignment - 1) /
                           kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, rounded);
    if (!memory)
      throw Error(ErrorCode::kOutOfMemory,
                  fmt::format("cannot allocate {} bytes of host memory", bytes));
    return memory;
  }
  void release(void* memory) const noexcept override { std::free(memory); }
  void copy_to_device(void* to, const void* from, int64_t bytes) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_to_host(void* to, const void* from, int64_t bytes) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill(void* memory, int byte, int64_t bytes, StreamHandle) const override {
    std::memset(memory, byte, static_cast<size_t>(bytes));
  }
  void fill_floats(float* memory, float value, int64_t count, StreamHandle) const override {
    std::fill_n(memory, count, value);
  }
  void synchronize() const override {}
  int sm_clock_mhz() const override { return 0; }

  double time_us(int launches, const std::function<void(int)>& fn) const override {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) fn(i);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
  }

 private:
  const CpuToolchain& toolchain_;
  const std::shared_ptr<const ForkedPool> pool_;
  const Arch arch_;
  const DeviceIdentity identity_;
  const DeviceFacts facts_;
};

}  // namespace

std::shared_ptr<const Device> open_cpu_device(std::optional<int> threads) {
  if (threads && (*threads < 1 || *threads > kMaxCpuThreads))
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("target is \"cpu:{}\"; must be 1 to {} threads", *threads, kMaxCpuThreads));
  return std::make_shared<CpuDevice>(cpu_toolchain(), threads.value_or(usable_cores()));
}

}  // namespace attune
