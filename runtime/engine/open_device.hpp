// SPDX-License-Identifier: Apache-2.0
// Opens a Device by the name of a target. Used by the C ABI and the command line.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/engine/device.hpp"

namespace attune {

// Opens "auto" (CUDA if there is a driver and a device, else the CPU), "cuda" (the current
// context's device, else the first), "cuda:N", "cpu" (one thread per core) or "cpu:N" (N threads,
// at most 1024). Throws kInvalidArgument for other names, kDriver or kCompile if the target is not
// available.
std::shared_ptr<const Device> open_device(std::string_view target);

// Returns the number of CUDA devices; 0, with a sentence in `why`, if there is no driver.
int cuda_device_count(std::string* why = nullptr);

}  // namespace attune
