// SPDX-License-Identifier: Apache-2.0
// A CPU kernel is given all of KernelArguments (shared/kernel_arguments.h): one that reads a later member is rendered with those before it.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// The constants beyond those that the spec itself brings.
std::vector<Constant> constants_of_earlier_arguments(const KernelSpec& spec);

}  // namespace attune
