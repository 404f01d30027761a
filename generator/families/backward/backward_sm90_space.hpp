// SPDX-License-Identifier: Apache-2.0
// The knobs of backward_sm90 and their rules, and the registers and memory of its kernels.
#pragma once

#include "generator/families/backward/backward_sm90_cost.hpp"
#include "generator/kernel_template.hpp"

namespace attune {

SearchSpace backward_sm90_space(const KernelSpec& spec, const Arch& arch);

int backward_shared_bytes(const BackwardKernel& kernel);
PrefillSm90Registers backward_registers(const BackwardKernel& kernel);

}  // namespace attune
