// SPDX-License-Identifier: Apache-2.0
// The CPU implementation of Device: objects are loaded by generator/cpu_toolchain.hpp, launches run on
// a thread pool and return when done.
#pragma once

#include <memory>
#include <optional>

#include "runtime/device.hpp"

namespace attune {

constexpr int kMaxCpuThreads = 1024;

// `threads`: 1 to kMaxCpuThreads; none = one for each core this process may use. Where the system
// grants fewer threads, the device uses those, and the log says so. Compiling needs the plugin
// libattune_clang.so; opening the device does not.
std::shared_ptr<const Device> open_cpu_device(std::optional<int> threads = {});

}  // namespace attune
