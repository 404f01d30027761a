// SPDX-License-Identifier: Apache-2.0
// prefill_sm90_fp8: TMA + wgmma attention forward with 8-bit operands for sm_90a (Hopper). Source:
// templates/cuda/prefill_sm90_fp8.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm90_fp8();

}  // namespace attune
