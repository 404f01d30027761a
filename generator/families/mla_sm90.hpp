// SPDX-License-Identifier: Apache-2.0
// The family mla_sm90: op attention_kvcache in 16 bits by wgmma, of keys whose first columns are the values (templates/cuda/mla_sm90.cu).
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& mla_sm90();

}  // namespace attune
