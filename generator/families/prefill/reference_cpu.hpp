// SPDX-License-Identifier: Apache-2.0
// The oracle on CPUs: templates/cpu/reference_cpu.cpp, simple and slow, without knobs.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& reference_cpu();

}  // namespace attune
