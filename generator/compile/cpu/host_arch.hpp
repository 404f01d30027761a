// SPDX-License-Identifier: Apache-2.0
// Names CPUs as LLVM 19 does, and this machine's CPU, without LLVM. Used by cpu_toolchain.cpp.
#pragma once

#include <string_view>

#include "generator/core/problem/arch.hpp"

namespace attune {

// Returns this machine's CPU. The features are those that CPU and operating system provide, not
// those that the CPU's name implies.
Arch detect_host_arch();
// True for the name of an x86-64 or AArch64 CPU that LLVM 19 compiles for, and for this machine's
// CPU.
bool is_cpu_name(std::string_view name);

}  // namespace attune
