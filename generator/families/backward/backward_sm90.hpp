// SPDX-License-Identifier: Apache-2.0
// backward_sm90: gradients of attention for sm_90a (Hopper). One kernel makes dQ, another dK and
// dV. Source: templates/cuda/backward_sm90.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& backward_sm90();

}  // namespace attune
