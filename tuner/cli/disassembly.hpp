// SPDX-License-Identifier: Apache-2.0
// Turns machine code into text, by a disassembler of the system.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "generator/core/arch.hpp"

namespace attune::cli {

struct Disassembly {
  std::string tool;  // "nvdisasm"
  std::string text;
};

// Disassembles a compiled image for `arch`: by nvdisasm or cuobjdump for CUDA, by objdump or
// llvm-objdump for a CPU. Uses the first one of $PATH (or of CUDA's usual folder) that succeeds.
// Returns nullopt if none does. Throws kIo if no temporary file can be written.
std::optional<Disassembly> disassemble(std::string_view image, const Arch& arch);

}  // namespace attune::cli
