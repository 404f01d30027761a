// SPDX-License-Identifier: Apache-2.0
// Where NVRTC may be found on this machine. Used by nvrtc_compiler.
#pragma once

#include <string>
#include <vector>

namespace attune {

// What to dlopen, and how `attune doctor` says where it came from.
struct NvrtcCandidate {
  std::string file;             // a path, or a name for the loader
  const char* origin;           // "Python's packages", "the loader"
  bool only_if_loaded = false;  // take it where the process has it already, else pass on
};

// $ATTUNE_NVRTC; "" when it is not set.
std::string chosen_nvrtc();
// Adds absolute folders, the packages of the Python that runs attune. Those that come after NVRTC was opened have no effect.
void offer_nvrtc_folders(const std::vector<std::string>& folders);
// In order: $ATTUNE_NVRTC, one that the process has loaded, offered folders and $ATTUNE_NVRTC_FOLDERS, conda, the loader's
// path, toolkits, Python's packages found through PATH.
std::vector<NvrtcCandidate> nvrtc_candidates();
// libnvrtc-builtins files in the same folder; opened before the first compile, since NVRTC asks the loader for them by name.
std::vector<std::string> nvrtc_builtins_beside(const std::string& nvrtc_path);

}  // namespace attune
