// SPDX-License-Identifier: Apache-2.0
// The constants of top_k for its test on the host, as CMakeLists.txt defines them.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::TOP_K_DTYPE;
constexpr Mask kMask = Mask::TOP_K_MASK;
constexpr int kThreads = TOP_K_THREADS;
constexpr int kVectors = TOP_K_VECTORS;

}  // namespace attune
