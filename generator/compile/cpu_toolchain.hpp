// SPDX-License-Identifier: Apache-2.0
// The CPU target: names this CPU, loads and runs objects, and compiles a Source with clang. Only
// compiling needs LLVM, which is in the plugin libattune_clang.so, opened for the first compile.
// Without the plugin, kernels from bundles and stores still run.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/compile/compiler.hpp"
#include "templates/shared/kernel_arguments.h"

namespace attune {

// A loaded host kernel. Thread-safe and immutable; code is unmapped on destruction.
class HostKernel {
 public:
  using Function = void (*)(const KernelArguments* args, int thread, int num_threads);
  virtual ~HostKernel() = default;
  virtual Function function(size_t entry = 0) const = 0;  // an index into `entries` of load()
};

class CpuToolchain {
 public:
  CpuToolchain();
  // Returns this machine: LLVM's name of its CPU, its real features, its vector width.
  const Arch& host_arch() const { return host_arch_; }
  // Opens the plugin when it first compiles.
  const Compiler& compiler() const { return *compiler_; }
  // Loads object code. Throws kInvalidArgument for bytes that are not a host object with all of
  // `entries`. Also throws it for references to functions other than memcpy, memmove, memset, expf,
  // logf and the compiler's fp16 conversions. Throws kOutOfMemory or kUnsupported if the system
  // provides no memory for code.
  std::unique_ptr<HostKernel> load(std::string_view object,
                                   const std::vector<std::string>& entries) const;
  // True if LLVM has an x86-64 or AArch64 CPU of this name.
  bool knows_cpu(std::string_view name) const;

 private:
  const Arch host_arch_;
  const std::unique_ptr<const Compiler> compiler_;
};

// Returns the toolchain of this process; never fails.
const CpuToolchain& cpu_toolchain();
// Returns the toolchain if the plugin can be found; else nullptr, with the reason in `why`. Opens
// the plugin only if its file is not at a known path.
const CpuToolchain* compiling_toolchain(std::string* why = nullptr);

}  // namespace attune
