// SPDX-License-Identifier: Apache-2.0
// Constants that the prefill kernels with mma.sync define before their parts of cuda/mma/, for
// editors (prefill_sm80.cu).
#pragma once

#include "cuda/prefill_sm80/prefill_sm80_knobs.cuh"
#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

constexpr int kThreads = 32 * kWarps;
constexpr PrefillSm80Layout kLayout{kBlockM,  kBlockN, kWarps,     kKvSlots,
                                    kShareKv, kQPlace, kHeadDimQk, kHeadDimV};

}  // namespace attune
