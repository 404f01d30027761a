// SPDX-License-Identifier: Apache-2.0
// The CPU's attention kernel: templates/cpu/prefill_cpu.cpp, its search space and its launch.
#pragma once

#include <cstdint>

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_cpu();

// The widest window that CPU kernels take, beyond the lengths of all calls.
constexpr int64_t kWidestWindow = int64_t{1} << 30;

// Why no CPU template serves this (arch, dtype, head dim, window), as a sentence; nullopt when one
// does.
std::optional<std::string> cpu_refusal(const KernelSpec& spec, const Arch& arch);

}  // namespace attune
