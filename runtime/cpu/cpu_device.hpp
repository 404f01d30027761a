// SPDX-License-Identifier: Apache-2.0
// The CPU implementation of Device: kernels come from the CPU plugin, launches run on a thread pool
// and return when done.
#pragma once

#include <memory>
#include <optional>

#include "runtime/device.hpp"

namespace attune {

constexpr int kMaxCpuThreads = 1024;

// `threads`: 1 to kMaxCpuThreads; none = one for each core this process may use. Where the system
// grants fewer threads, the device uses those, and the log says so. Throws kCompile with advice
// when the CPU plugin cannot be opened.
std::shared_ptr<const Device> open_cpu_device(std::optional<int> threads = {});

}  // namespace attune
