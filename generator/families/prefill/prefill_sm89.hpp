// SPDX-License-Identifier: Apache-2.0
// prefill_sm89: attention with mma.sync over e4m3 queries and e4m3 or e5m2 keys and values, from
// sm_89 on. The kernel is templates/cuda/prefill_sm89.cu; rules and launch are in prefill_mma.hpp.
#pragma once

#include "generator/kernel_template.hpp"

namespace attune {

const KernelTemplate& prefill_sm89();

}  // namespace attune
