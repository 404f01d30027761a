// SPDX-License-Identifier: Apache-2.0
// The CPU implementation of Device. generator/compile/cpu_toolchain.hpp loads objects; launches run
// on a thread pool and return when they are done.
#pragma once

#include <memory>
#include <optional>

#include "runtime/engine/device.hpp"

namespace attune {

constexpr int kMaxCpuThreads = 1024;

// Opens the CPU. `threads`: 1 to kMaxCpuThreads; none = one per core that this process may use. If
// the system grants fewer threads, the device uses those, and the log says so. Compiling needs the
// plugin libattune_clang.so; opening the device does not.
std::shared_ptr<const Device> open_cpu_device(std::optional<int> threads = {});

}  // namespace attune
