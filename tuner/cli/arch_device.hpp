// SPDX-License-Identifier: Apache-2.0
// A GPU that is not here: a Device with the arch and facts of a named or typical one, for commands
// that only choose kernels (`attune explain --arch`). It neither loads nor runs anything.
#pragma once

#include <memory>

#include "runtime/engine/device.hpp"
#include "tuner/cli/kernel_choice.hpp"

namespace attune::cli {

// Throws kInvalidArgument for the arch of a CPU.
std::shared_ptr<const Device> device_of_arch(const NamedArch& arch);

}  // namespace attune::cli
