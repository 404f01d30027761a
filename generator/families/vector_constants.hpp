// SPDX-License-Identifier: Apache-2.0
// Constants that CPU kernels with vectors share.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

// Returns all constants of a kernel with vectors and `scratch_bytes` of scratch for each thread.
std::vector<Constant> vector_constants(const KernelSpec& spec, const Arch& arch,
                                       int64_t scratch_bytes);

}  // namespace attune
