// SPDX-License-Identifier: Apache-2.0
// Turns machine code into text, by a disassembler of the system.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "generator/core/problem/arch.hpp"

namespace attune::cli {

struct Disassembly {
  std::string tool;  // "nvdisasm"
  std::string text;
};

// Disassembles a compiled image for `arch`: with nvdisasm or cuobjdump for CUDA, with objdump or
// llvm-objdump for a CPU. Uses the first of these tools that succeeds, from $PATH or CUDA's usual
// folder. Returns nullopt if none succeeds. Throws kIo if no temporary file can be written.
std::optional<Disassembly> disassemble(std::string_view image, const Arch& arch);

}  // namespace attune::cli
