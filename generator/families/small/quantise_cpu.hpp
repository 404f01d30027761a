// SPDX-License-Identifier: Apache-2.0
// quantise_cpu: op quantise on CPUs. Kernel: templates/cpu/quantise.cpp.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& quantise_cpu();

}  // namespace attune
