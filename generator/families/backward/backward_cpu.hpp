// SPDX-License-Identifier: Apache-2.0
// Family backward_cpu: gradients of attention on any CPU (templates/cpu/backward_cpu.cpp).
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& backward_cpu();

}  // namespace attune
