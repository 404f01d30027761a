// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm90_stored, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kL2SectionMb = 32;  // MB of streamed operands, for heads processed together

constexpr int kBlockM = 128;  // attune_kernel: rows of Q and dout per block, 64 for each warpgroup
constexpr int kBlockN = 96;   // rows of K and V per step
constexpr int kKSlots = 3;    // tiles of K, and of V, in shared memory
constexpr int kVSlots = 3;
constexpr int kKeyBlockN = 128;  // attune_keys, attune_values: keys per block
constexpr int kQSlots = 3;       // tiles of Q, or dout, in shared memory

constexpr int kKeyBlockM = 64;  // rows of Q, or dout, per step

}  // namespace attune
