// SPDX-License-Identifier: Apache-2.0
// Default constants of score_gradient_sm80, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 80;
constexpr bool kInOrder = true;  // a kernel starts when the previous kernel has ended
constexpr int kScoreGradient = 1, kRepeats = 0;  // shared/score_gradient.h

constexpr int kBlockM = 64;      // rows of Q and dout per block, 16 or 32 for each warp
constexpr int kBlockN = 64;      // rows of K and V per step
constexpr int kWarps = 4;        // per block
constexpr int kKvSlots = 2;      // steps in shared memory
constexpr int kBlocksPerSm = 2;  // blocks per multiprocessor that the registers must allow

// Knobs of key kernels (cuda/mma/mma_gradient_stream.cuh), which this template lacks.
constexpr int kKeyBlockN = 64, kKeyBlockM = 16, kKeyWarps = 4, kQSlots = 1;
constexpr int kL2SectionMb = 32;

}  // namespace attune
