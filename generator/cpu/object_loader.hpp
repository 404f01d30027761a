// SPDX-License-Identifier: Apache-2.0
// Object code -> runnable code in this process. Used by cpu_toolchain.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/cpu_toolchain.hpp"

namespace attune {

// Throws kInvalidArgument for bytes that are not an object of this machine that defines all of
// `entries`, or that refer to anything but memcpy, memmove, memset, expf, logf and the compiler's
// own conversions of fp16. Throws kOutOfMemory and kUnsupported where the system grants no memory
// for code.
std::unique_ptr<HostKernel> load_object(std::string_view object,
                                        const std::vector<std::string>& entries);

}  // namespace attune
