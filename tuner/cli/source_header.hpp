// SPDX-License-Identifier: Apache-2.0
// What stands at the head of a source that `attune emit` prints: problem, config, entry, launch and
// the command that compiles it. The renderer's text itself stays as it is.
#pragma once

#include <string>

#include "tuner/cli/kernel_choice.hpp"

namespace attune::cli {

// `source` with the header behind its licence line. `config_from`: "the default", say; `device`:
// whose facts it follows; `file`: the name that the compile command shall name.
std::string with_header(const std::string& source, const Problem& problem,
                        const KernelChoice& choice, const std::string& config_from,
                        const std::string& device, const std::string& file);

}  // namespace attune::cli
