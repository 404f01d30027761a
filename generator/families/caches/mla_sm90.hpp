// SPDX-License-Identifier: Apache-2.0
// The family mla_sm90: op attention_kvcache in 16 bits with wgmma, for caches whose values are the
// first columns of the keys (templates/cuda/mla_sm90.cu).
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& mla_sm90();

}  // namespace attune
