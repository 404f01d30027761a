// SPDX-License-Identifier: Apache-2.0
// The CPU target for the rest of the project: name this CPU, load an object and run it, compile a
// Source with clang. All but compiling needs no LLVM. clang is in the plugin libattune_clang.so,
// which is opened for the first compile. Without it, kernels from bundles and stores still run.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/compiler.hpp"
#include "templates/shared/kernel_arguments.h"

namespace attune {

// A loaded host kernel. Thread-safe and immutable; code is unmapped on destruction.
class HostKernel {
 public:
  using Function = void (*)(const KernelArguments* args, int thread, int num_threads);
  virtual ~HostKernel() = default;
  virtual Function function(size_t entry = 0) const = 0;  // by their order in `entries` of load()
};

class CpuToolchain {
 public:
  CpuToolchain();
  // Returns this machine: LLVM's name of its CPU, its real features, its vector width.
  const Arch& host_arch() const { return host_arch_; }
  // Opens the plugin on its first compile, not before.
  const Compiler& compiler() const { return *compiler_; }
  // Loads object code. Throws kInvalidArgument for bytes that are not a host object with all
  // `entries`.
  std::unique_ptr<HostKernel> load(std::string_view object,
                                   const std::vector<std::string>& entries) const;
  // True if LLVM has an x86-64 or AArch64 CPU of this name.
  bool knows_cpu(std::string_view name) const;

 private:
  const Arch host_arch_;
  const std::unique_ptr<const Compiler> compiler_;
};

// Returns the toolchain of this process. Every machine has one.
const CpuToolchain& cpu_toolchain();
// Returns the toolchain if the plugin's file is found, so that it can compile; else nullptr, with
// the reason in `why`. If the file can be seen, does not open it.
const CpuToolchain* compiling_toolchain(std::string* why = nullptr);

}  // namespace attune
