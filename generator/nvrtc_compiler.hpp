// SPDX-License-Identifier: Apache-2.0
// Compiler for CUDA sources through NVRTC, opened at run time wherever it is. Needs no GPU and no CUDA header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/compiler.hpp"

namespace attune {

struct NvrtcLocation {
  std::string path;     // "" when none was found
  std::string version;  // "13.0"
  std::string origin;   // how it was found: nvrtc_locate.hpp has the words
  std::vector<std::string> tried;
  std::string passed_over;  // why $ATTUNE_NVRTC is not what is used; "" when it is, or is not set
};

// Opens NVRTC once for the process; nvrtc_locate.hpp says where it is looked for, and in which order.
// nullptr when there is none; `location`, if given, says what was found or tried. Logs a warning when
// $ATTUNE_NVRTC was passed over.
const Compiler* open_nvrtc_compiler(NvrtcLocation* location = nullptr);

// The PTX that NVRTC makes of a source on its way to the cubin. Throws kCompile, also when there is no NVRTC.
std::string nvrtc_ptx(const Source& source, const Arch& arch);

// One sentence for messages when there is no NVRTC: what it costs and how to get it.
std::string nvrtc_advice();

}  // namespace attune
