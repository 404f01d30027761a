// SPDX-License-Identifier: Apache-2.0
// `attune emit --html`: one page that shows a kernel's source and its machine code, without network
// and without scripts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/core/problem/arch.hpp"
#include "tuner/cli/kernel_choice.hpp"

namespace attune::cli {

struct EmitPage {
  std::string title;                                             // "prefill_sm90 for sm_90a"
  std::vector<std::pair<std::string, std::string>> facts{};      // name and value, in order
  std::vector<std::pair<std::string, std::string>> resources{};  // name and value, in order
  std::string compiler_log;                                      // may be empty
  std::string source;                                            // as rendered
  std::string code_title{};                                      // "Machine code, by nvdisasm"
  std::string code{};
};

std::string to_html(const EmitPage& page);

// Turns machine code into text, by a disassembler of the system.

struct Disassembly {
  std::string tool;  // "nvdisasm"
  std::string text;
};

// Disassembles a compiled image for `arch`: with nvdisasm or cuobjdump for CUDA, with objdump or
// llvm-objdump for a CPU. Uses the first of these tools that succeeds, from $PATH or CUDA's usual
// folder. Returns nullopt if none succeeds. Throws kIo if no temporary file can be written.
std::optional<Disassembly> disassemble(std::string_view image, const Arch& arch);

// The header of a source that `attune emit` prints: problem, config, entry, launch and the command
// that compiles it. The renderer's text itself is unchanged.

// Returns `source` with the header after its licence line. `config_from`: the origin of the config,
// such as "the default". `device`: the device whose facts choose the defaults. `file`: the name in
// the compile command.
std::string with_header(const Source& source, const Problem& problem, const KernelChoice& choice,
                        const std::string& config_from, const std::string& device,
                        const std::string& file);

}  // namespace attune::cli
