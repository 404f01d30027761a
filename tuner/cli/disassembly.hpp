// SPDX-License-Identifier: Apache-2.0
// Machine code as text, by a disassembler of the system.
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

// Of a compiled image for `arch`: nvdisasm or cuobjdump for CUDA, objdump or llvm-objdump for a CPU, the first of $PATH (or of CUDA's usual
// folder) that takes it. Nothing where none does. Throws kIo where no file can be written for it.
std::optional<Disassembly> disassemble(std::string_view image, const Arch& arch);

}  // namespace attune::cli
