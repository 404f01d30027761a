// SPDX-License-Identifier: Apache-2.0
// prefill_sm80_tf32: fp32 operands on tensor cores through tf32, if less than fp32 arithmetic is
// asked for (accuracy fast or split). mma.sync and cp.async, every CUDA arch from sm_80 on. Kernel:
// templates/cuda/prefill_sm80_tf32.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm80_tf32();

}  // namespace attune
