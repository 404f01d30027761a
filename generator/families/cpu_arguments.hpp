// SPDX-License-Identifier: Apache-2.0
// A CPU kernel gets all of KernelArguments (shared/kernel_arguments.h). If it reads a later member,
// it is rendered with all members before it.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// Returns the constants for these members, beyond those of the spec.
std::vector<Constant> constants_of_earlier_arguments(const KernelSpec& spec);

// Returns all constants of a kernel with vectors and `scratch_bytes` of scratch for each thread.
std::vector<Constant> vector_constants(const KernelSpec& spec, const Arch& arch,
                                       int64_t scratch_bytes);

}  // namespace attune
