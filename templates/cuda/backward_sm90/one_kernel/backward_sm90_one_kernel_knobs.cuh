// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm90_one_kernel, for editors and nvcc. The renderer replaces this
// file with the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kL2SectionMb = 32;  // MB of streamed operands, for heads processed together

constexpr int kKeyBlockM = 64;  // rows of Q and dout per step
constexpr int kQSlots = 2;      // tiles of Q, and of dout, in shared memory
constexpr int kDoutSlots = 2;
constexpr int kSectionHeads = 16;  // heads whose tiles are taken in turn
constexpr int kScheduler = 0;      // 0: a block for each tile; 2: persistent blocks draw tiles
constexpr int kOrdered = 1;        // 1: blocks add to dQ in the order of keys

constexpr int kKeyBlockN = 128;  // rows of K and V per block
constexpr int kBlockM = 128;     // rows of L2 and delta are padded to these

}  // namespace attune
