// SPDX-License-Identifier: Apache-2.0
// Where NVRTC may be found on this machine. Used by nvrtc_compiler.
#pragma once

#include <string>
#include <vector>

namespace attune {

// $ATTUNE_NVRTC; "" when it is not set.
std::string chosen_nvrtc();
// Names and paths to dlopen, in order: $ATTUNE_NVRTC, the loader's path, toolkits, Python wheels.
std::vector<std::string> nvrtc_candidates();
// libnvrtc-builtins files in the same folder; opened first, since NVRTC asks the loader for them by name.
std::vector<std::string> nvrtc_builtins_beside(const std::string& nvrtc_path);

}  // namespace attune
