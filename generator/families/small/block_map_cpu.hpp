// SPDX-License-Identifier: Apache-2.0
// The family of op block_map on CPUs; see templates/cpu/block_map.cpp.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& block_map_cpu();

}  // namespace attune
