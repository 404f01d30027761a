// SPDX-License-Identifier: Apache-2.0
// The CPU toolchain; its parts are in generator/compile/cpu/. See cpu_toolchain.hpp.
#include "generator/compile/cpu_toolchain.hpp"

#include "generator/compile/cpu/host_arch.hpp"
#include "generator/compile/cpu/object_loader.hpp"
#include "generator/compile/cpu/plugin_compiler.hpp"

namespace attune {

CpuToolchain::CpuToolchain() : host_arch_(detect_host_arch()), compiler_(plugin_compiler()) {}

std::unique_ptr<HostKernel> CpuToolchain::load(std::string_view object,
                                               const std::vector<std::string>& entries) const {
  return load_object(object, entries);
}

bool CpuToolchain::knows_cpu(std::string_view name) const { return is_cpu_name(name); }

const CpuToolchain& cpu_toolchain() {
  static const CpuToolchain toolchain;
  return toolchain;
}

const CpuToolchain* compiling_toolchain(std::string* why) {
  return plugin_is_here(why) ? &cpu_toolchain() : nullptr;
}

}  // namespace attune
