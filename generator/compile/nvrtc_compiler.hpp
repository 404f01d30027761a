// SPDX-License-Identifier: Apache-2.0
// Compiles CUDA sources with NVRTC, which is found and opened at run time. Needs no GPU and no CUDA
// header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/compile/compiler.hpp"

namespace attune {

struct NvrtcLocation {
  std::string path;     // "" if none was found
  std::string version;  // "13.0"
  std::string origin;   // how it was found (NvrtcCandidate::origin)
  std::vector<std::string> tried;
  std::string passed_over;  // why $ATTUNE_NVRTC is not used; "" if it is, or is not set
};

// Opens NVRTC, once per process; nvrtc_locate.hpp lists the places. Returns nullptr if there is no
// NVRTC. Sets `location`, if given, to the library found or the places tried. Logs a warning if
// $ATTUNE_NVRTC cannot be used.
const Compiler* open_nvrtc_compiler(NvrtcLocation* location = nullptr);

// Returns the PTX that NVRTC makes for a source. Throws kCompile, also if there is no NVRTC.
std::string nvrtc_ptx(const Source& source, const Arch& arch);

// Returns one sentence for messages about a missing NVRTC: the consequence, and how to install
// NVRTC.
std::string nvrtc_advice();

}  // namespace attune
