// SPDX-License-Identifier: Apache-2.0
// The attention kernel for CPUs, templates/cpu/prefill/prefill_cpu.cpp: its search space and its
// launch.
#pragma once

#include <cstdint>

#include "generator/kernel_template.hpp"

namespace attune {

// The widest window of CPU kernels, longer than any call.
constexpr int64_t kWidestWindow = int64_t{1} << 30;

// Returns why no CPU template serves this (arch, dtype, head dim, window), as a sentence; nullopt
// if one does.
std::optional<std::string> cpu_refusal(const KernelSpec& spec, const Arch& arch);

}  // namespace attune
