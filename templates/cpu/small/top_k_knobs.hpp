// SPDX-License-Identifier: Apache-2.0
// Default constants of top_k on a CPU, for editors. The renderer replaces this file with the
// constants of a config.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

constexpr Dtype kDtypeQ = Dtype::kFp32;
constexpr Mask kMask = Mask::kNone;

}  // namespace attune
