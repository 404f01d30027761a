// SPDX-License-Identifier: Apache-2.0
// Names an AArch64 CPU and its features as LLVM 19 does on Linux, from the text of /proc/cpuinfo.
// Stored kernels are found by these names, so they stay LLVM's. Used by host_arch.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune {

// Returns "neoverse-n1"; "generic" for a CPU that LLVM does not know. With several kinds of cores
// the last one counts.
std::string aarch64_cpu_name(std::string_view cpuinfo);
// Returns the features without "+", in no order.
std::vector<std::string> aarch64_features(std::string_view cpuinfo);

}  // namespace attune
