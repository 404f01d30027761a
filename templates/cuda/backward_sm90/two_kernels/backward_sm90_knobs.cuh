// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm90, for editors and nvcc. The renderer replaces this file with
// the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kL2SectionMb = 32;  // MB of streamed operands, for heads processed together

constexpr int kBlockM = 128;  // attune_kernel: rows of Q and dout per block, 64 for each warpgroup
constexpr int kBlockN = 96;   // rows of K and V per step
constexpr int kKSlots = 3;    // tiles of K in shared memory
constexpr int kKeyBlockN = 128;  // attune_keys: rows of K and V per block
constexpr int kKeyBlockM = 64;   // rows of Q and dout per step
constexpr int kQSlots = 3;       // tiles of Q in shared memory
constexpr int kSplitKv = 0;      // 1: separate kernels compute dK and dV
constexpr int kFoldSums = 0;     // 1: attune_kernel computes L2 and delta; 0: attune_prepare

constexpr int kVSlots = 2, kDoutSlots = 2;            // tiles of V, and of dout, in shared memory
constexpr bool kHasKeys = true;                       // dK or dV is requested
constexpr bool kKeysMakeK = true, kKeysMakeV = true;  // gradients that attune_keys computes

}  // namespace attune
