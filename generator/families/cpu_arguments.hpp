// SPDX-License-Identifier: Apache-2.0
// A CPU kernel gets all of KernelArguments (shared/kernel_arguments.h). If it reads a later member,
// it is rendered with all members before it.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// Returns the constants for these members, beyond those of the spec.
std::vector<Constant> constants_of_earlier_arguments(const KernelSpec& spec);

}  // namespace attune
