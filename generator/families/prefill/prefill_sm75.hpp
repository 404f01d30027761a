// SPDX-License-Identifier: Apache-2.0
// prefill_sm75: the Turing form of prefill_sm80 (m16n8k8, plain loads); sm_75, fp16. Kernel:
// templates/cuda/prefill_sm75.cu.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm75();

}  // namespace attune
