// SPDX-License-Identifier: Apache-2.0
// Turns object code into runnable code in this process. Used by cpu_toolchain.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/cpu_toolchain.hpp"

namespace attune {

// Throws kInvalidArgument for bytes that are not an object of this machine with all `entries`. Also
// for an object that refers to anything but memcpy, memmove, memset, expf, logf and the compiler's
// own fp16 conversions. Throws kOutOfMemory or kUnsupported if the system grants no memory for
// code.
std::unique_ptr<HostKernel> load_object(std::string_view object,
                                        const std::vector<std::string>& entries);

}  // namespace attune
