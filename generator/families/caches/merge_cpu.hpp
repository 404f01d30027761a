// SPDX-License-Identifier: Apache-2.0
// merge_cpu: op merge on CPUs. Kernel: templates/cpu/merge.cpp.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& merge_cpu();

}  // namespace attune
