// SPDX-License-Identifier: Apache-2.0
// The CPU target as the rest of the project sees it: compile a Source with clang, load the object, run it. It lives in the
// plugin libattune_cpu.so, the only part that needs LLVM, opened at run time; without it everything else still works.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "generator/compiler.hpp"
#include "templates/shared/kernel_arguments.h"

namespace attune {

// A loaded host kernel. Thread-safe and immutable; code is unmapped on destruction.
class HostKernel {
 public:
  using Function = void (*)(const KernelArguments* args, int thread, int num_threads);
  virtual ~HostKernel() = default;
  virtual Function function(
      size_t entry = 0) const = 0;  // in the order in which they were asked for
};

class CpuToolchain {
 public:
  virtual ~CpuToolchain() = default;
  virtual Arch host_arch()
      const = 0;  // this machine: LLVM cpu name, its real features, vector width
  virtual const Compiler& compiler() const = 0;  // loads clang on its first compile, not before
  // Loads object code without running clang. Throws kInvalidArgument for bytes that are not a host object with all `entries`.
  virtual std::unique_ptr<HostKernel> load(std::string_view object,
                                           const std::vector<std::string>& entries) const = 0;
  // read_image_info (generator/image_info.hpp) with LLVM's reader of object files.
  virtual std::optional<ImageInfo> image_info(std::string_view elf,
                                              std::string_view entry) const = 0;
  // Whether LLVM has an x86-64 or AArch64 CPU of this name.
  virtual bool knows_cpu(std::string_view name) const = 0;
};

// What the plugin exports under this name; the object lives as long as the process. The number is raised when an interface
// that crosses the plugin's border changes, so that a plugin of another build is refused.
inline constexpr const char* kCpuToolchainSymbol = "attune_cpu_toolchain_4";
using CpuToolchainFunction = const CpuToolchain* (*)();

// Opens the plugin once (next to the program or library, then the loader's path). nullptr when it cannot be opened:
// `why`, if given, then says what was tried and how to get it.
const CpuToolchain* open_cpu_toolchain(std::string* why = nullptr);

}  // namespace attune
