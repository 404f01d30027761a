// SPDX-License-Identifier: Apache-2.0
// From a target's name to a Device. Used by the C ABI and the command line.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/device.hpp"

namespace attune {

// "auto" (CUDA where a driver and a device answer, else the CPU), "cuda" (the current context's
// device, else the first), "cuda:N", "cpu" (a thread for each core) or "cpu:N" (N threads, at
// most 1024). Throws kInvalidArgument for other words, kDriver or kCompile with a sentence when the
// target is not there.
std::shared_ptr<const Device> open_device(std::string_view target);

// Number of CUDA devices; 0 with a sentence in `why` when there is no driver.
int cuda_device_count(std::string* why = nullptr);

}  // namespace attune
