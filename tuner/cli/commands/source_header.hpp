// SPDX-License-Identifier: Apache-2.0
// The header of a source that `attune emit` prints: problem, config, entry, launch and the command
// that compiles it. The renderer's text itself is unchanged.
#pragma once

#include <string>

#include "tuner/cli/kernel_choice.hpp"

namespace attune::cli {

// Returns `source` with the header after its licence line. `config_from`: the origin of the config,
// such as "the default". `device`: the device whose facts choose the defaults. `file`: the name in
// the compile command.
std::string with_header(const Source& source, const Problem& problem, const KernelChoice& choice,
                        const std::string& config_from, const std::string& device,
                        const std::string& file);

}  // namespace attune::cli
