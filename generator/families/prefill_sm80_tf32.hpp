// SPDX-License-Identifier: Apache-2.0
// prefill_sm80_tf32: fp32 operands by the tensor cores' tf32, for who asks for less than fp32 arithmetic (accuracy fast or split);
// mma.sync and cp.async, every CUDA arch from sm_80 on. Kernel: templates/cuda/prefill_sm80_tf32.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm80_tf32();

}  // namespace attune
