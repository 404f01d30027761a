// SPDX-License-Identifier: Apache-2.0
// CPUs as LLVM names them, and this machine's. Part of the CPU plugin.
#pragma once

#include <string_view>

#include "generator/core/arch.hpp"

namespace attune {

Arch detect_host_arch();
bool is_cpu_name(std::string_view name);  // of an x86-64 or AArch64 CPU

}  // namespace attune
