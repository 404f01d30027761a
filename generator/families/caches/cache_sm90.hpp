// SPDX-License-Identifier: Apache-2.0
// The family cache_sm90: op attention_kvcache in 16 bits with wgmma, for rows of several tokens
// (templates/cuda/cache_sm90.cu).
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& cache_sm90();

}  // namespace attune
