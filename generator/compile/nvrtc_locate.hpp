// SPDX-License-Identifier: Apache-2.0
// Finds NVRTC on this machine. Used by nvrtc_compiler.
#pragma once

#include <string>
#include <vector>

namespace attune {

// A file for dlopen, and its origin in the words that `attune doctor` prints.
struct NvrtcCandidate {
  std::string file;             // a path, or a name for the loader
  const char* origin;           // "Python's packages", "the loader"
  bool only_if_loaded = false;  // use it only if the process has already loaded it
};

// Returns $ATTUNE_NVRTC; "" if it is not set.
std::string chosen_nvrtc();
// Adds absolute folders: the packages of the Python that runs attune. Has no effect after NVRTC was
// opened.
void offer_nvrtc_folders(const std::vector<std::string>& folders);
// Returns the candidates in order: $ATTUNE_NVRTC, a library that the process has loaded, offered
// folders and $ATTUNE_NVRTC_FOLDERS, conda, the loader's path, toolkits, and packages of each
// Python on PATH.
std::vector<NvrtcCandidate> nvrtc_candidates();
// Returns the libnvrtc-builtins files in the same folder. They must be opened before the first
// compile, since NVRTC asks the loader for them by name.
std::vector<std::string> nvrtc_builtins_beside(const std::string& nvrtc_path);

}  // namespace attune
