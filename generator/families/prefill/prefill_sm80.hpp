// SPDX-License-Identifier: Apache-2.0
// prefill_sm80: mma.sync and cp.async, for fp16 and bf16 on every CUDA arch from sm_80 on. Kernel:
// templates/cuda/prefill_sm80.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm80();

}  // namespace attune
