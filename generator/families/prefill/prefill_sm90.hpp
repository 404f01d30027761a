// SPDX-License-Identifier: Apache-2.0
// prefill_sm90: TMA + wgmma attention forward for sm_90a (Hopper). Source:
// templates/cuda/prefill_sm90.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm90();

}  // namespace attune
