// SPDX-License-Identifier: Apache-2.0
// Loads object code into this process as runnable code. Used by cpu_toolchain.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/compile/cpu_toolchain.hpp"

namespace attune {

// Throws kInvalidArgument for bytes that are not an object of this machine with all of `entries`.
// Also throws it for references to functions other than memcpy, memmove, memset, expf, logf and the
// compiler's fp16 conversions. Throws kOutOfMemory or kUnsupported if the system provides no memory
// for code.
std::unique_ptr<HostKernel> load_object(std::string_view object,
                                        const std::vector<std::string>& entries);

}  // namespace attune
