// SPDX-License-Identifier: Apache-2.0
// A toy op, to show that an op needs one op file, one oracle file and a template. Inputs x and y
// use the operands of q and k. Outputs x + y and x - y use those of o and v. When linked into a
// program, it registers itself before main.
#pragma once

#include "generator/core/problem/op.hpp"
#include "generator/kernel_template.hpp"

namespace attune::toy {

inline constexpr Op kToy = static_cast<Op>(77);

const OpDescription& toy_op();
const KernelTemplate& toy_cpu();

}  // namespace attune::toy
