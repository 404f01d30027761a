// SPDX-License-Identifier: Apache-2.0
// Compiles CUDA sources with NVRTC, which is found and opened at run time. Needs no GPU and no CUDA
// header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/compiler.hpp"

namespace attune {

struct NvrtcLocation {
  std::string path;     // "" if none was found
  std::string version;  // "13.0"
  std::string origin;   // how it was found, in the words of nvrtc_locate.hpp
  std::vector<std::string> tried;
  std::string passed_over;  // why $ATTUNE_NVRTC is not used; "" if it is, or is not set
};

// Opens NVRTC once for the process; nvrtc_locate.hpp lists the places, in order. Returns nullptr if
// there is none. `location`, if given, gets what was found or tried. Logs a warning if
// $ATTUNE_NVRTC was passed over.
const Compiler* open_nvrtc_compiler(NvrtcLocation* location = nullptr);

// Returns the PTX that NVRTC makes on the way to a cubin. Throws kCompile, also if there is no
// NVRTC.
std::string nvrtc_ptx(const Source& source, const Arch& arch);

// Returns one sentence for messages about a missing NVRTC: what does not work, and how to get it.
std::string nvrtc_advice();

}  // namespace attune
