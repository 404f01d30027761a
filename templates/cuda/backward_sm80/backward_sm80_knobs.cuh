// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm80, for editors and nvcc. The renderer replaces this file with
// the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 80;
constexpr bool kInOrder = true;  // a kernel starts when the previous kernel has ended

constexpr int kBlockM = 64;  // attune_kernel: rows of Q and dout per block, 16 or 32 for each warp
constexpr int kBlockN = 32;  // rows of K and V per step
constexpr int kWarps = 4;    // per block
constexpr int kKvSlots = 2;  // steps in shared memory
constexpr int kBlocksPerSm = 1;  // blocks per multiprocessor that the registers must allow
constexpr int kKeyBlockN = 64;   // attune_keys, attune_values: rows of K and V per block
constexpr int kKeyBlockM = 32;   // rows of Q and dout per step
constexpr int kKeyWarps = 4;
constexpr int kQSlots = 2;
constexpr int kKeyBlocksPerSm = 1;
constexpr int kSplitKv = 0;  // 1: separate kernels compute dK and dV

constexpr bool kHasKeys = true;                       // dK or dV is requested
constexpr bool kKeysMakeK = true, kKeysMakeV = true;  // gradients that attune_keys computes
constexpr int kL2SectionMb = 32;  // MB of streamed operands, for heads processed together

}  // namespace attune
