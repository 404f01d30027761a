// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm90: what an editor or nvcc sees. The renderer puts the chosen
// ones in this file's place.
#pragma once

#include "cuda/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr bool kGradients = true;
constexpr bool kGradientQ = true, kGradientK = true, kGradientV = true;

constexpr int kBlockM = 128;  // attune_kernel: rows of Q and dout that stay, 64 for each warpgroup
constexpr int kBlockN = 96;   // rows of K and V per step
constexpr int kKSlots = 3;    // tiles of K, and of V, in shared memory
constexpr int kVSlots = 3;
constexpr int kKeyBlockN = 128;  // attune_keys: rows of K and V that stay
constexpr int kKeyBlockM = 64;   // rows of Q and dout per step
constexpr int kQSlots = 3;       // tiles of Q, and of dout, in shared memory
constexpr int kDoutSlots = 3;
constexpr int kSplitKv = 0;  // 1: dK and dV each by a kernel of its own

constexpr int kFoldSums = 0;  // 1: attune_kernel makes L2 and delta, instead of a step ahead of it

constexpr int kFuseDq =
    0;  // the kernel of dK and dV makes dQ, too: block after block of so many heads
constexpr int kOrdered = 1;    // of that kernel: blocks of keys add to dq in the order of keys
constexpr int kDrawTiles = 0;  // of that kernel: 1: blocks stay, and draw their tiles

constexpr int kBand = 0;  // 1: one kernel walks along a narrow band

constexpr int kStoreDs = 0;  // 1: dK and dV are made of dS and P that attune_kernel leaves behind

constexpr bool kHasRows = true;                       // attune_kernel is that of dQ
constexpr bool kHasKeysKernel = true;                 // there is an attune_keys
constexpr bool kHasKeys = true;                       // dK or dV is asked
constexpr bool kKeysMakeK = true, kKeysMakeV = true;  // what attune_keys makes
constexpr int kL2SectionMb = 32;  // streamed operands of heads worked on together

}  // namespace attune
