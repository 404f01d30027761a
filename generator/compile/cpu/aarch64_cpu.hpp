// SPDX-License-Identifier: Apache-2.0
// Names an AArch64 CPU and its features as LLVM 19 does on Linux, from the text of /proc/cpuinfo.
// Stored kernels are found by these names, so they must remain LLVM's names. Used by host_arch.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune {

// Returns a name such as "neoverse-n1", or "generic" for a CPU unknown to LLVM. If there are
// several kinds of cores, uses the last one.
std::string aarch64_cpu_name(std::string_view cpuinfo);
// Returns the features without "+", in no order.
std::vector<std::string> aarch64_features(std::string_view cpuinfo);

}  // namespace attune
