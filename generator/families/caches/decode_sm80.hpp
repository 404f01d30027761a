// SPDX-License-Identifier: Apache-2.0
// The family decode_sm80: op attention_kvcache in 16 bits on GPUs from sm_80 on
// (templates/cuda/decode_sm80.cu).
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& decode_sm80();

}  // namespace attune
