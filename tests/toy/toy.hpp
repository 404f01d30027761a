// SPDX-License-Identifier: Apache-2.0
// A toy op, to show that an op is added with one op file, one oracle file and a template: sum = x +
// y and difference = x - y, in the places of o and v, for x and y in those of q and k. Linked into
// a program it registers itself before main.
#pragma once

#include "generator/core/problem/op.hpp"
#include "generator/kernel_template.hpp"

namespace attune::toy {

inline constexpr Op kToy = static_cast<Op>(77);

const OpDescription& toy_op();
const KernelTemplate& toy_cpu();

}  // namespace attune::toy
