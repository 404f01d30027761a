// SPDX-License-Identifier: Apache-2.0
// Default constants of prefill_sm90_fp8, for editors and nvcc. The renderer replaces this file with
// the constants of a config.
#pragma once

#include "cuda/parts/default_spec_8bit.cuh"

namespace attune {

constexpr int kArch = 90;

constexpr int kBlockM = 192;      // rows of Q per block: 64 per consumer warpgroup
constexpr int kBlockN = 96;       // rows of K and V per step
constexpr int kBlocksPerSm = 1;   // blocks that share a multiprocessor
constexpr int kKvSlots = 2;       // slots for K, and as many for V
constexpr int kKvRing = 0;        // > 0: one ring with this many slots for K and V instead
constexpr int kOverlap = 1;       // softmax overlaps P V of the step before, in each warpgroup
constexpr int kPingPong = 1;      // warpgroups take turns in issuing wgmma
constexpr int kScheduler = 2;     // 0 one tile per block, 1 static persistent, 2 dynamic
constexpr int kL2SectionMb = 32;  // MB of K and V per group of heads; 0 = head by head
constexpr int kOStaging = 1;      // 1 shared memory and TMA store, 0 16-byte stores
constexpr int kRowMax = 0;        // a grown maximum is detected 0 by a test, 1 by its probabilities
constexpr int kFlushKeys = 1024;  // keys between flushes of the accumulator; 0 = never
constexpr int kTransposeInside = 0;  // 1 idle warps transpose V per tile, 0 an earlier kernel does
constexpr int kKvSplits = 1;         // blocks that share one tile of Q, each a part of its keys

}  // namespace attune
